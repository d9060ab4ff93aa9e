#![allow(missing_docs, unused)]
pub enum ListKind<'s> { Map(&'s [String]), Set, Atomic }
#[derive(Clone, Debug, Default)] pub struct Schemas;
#[derive(Clone, Copy, Debug)] pub struct Node<'s>(&'s ());
impl Schemas {
    pub fn builtin() -> Schemas { Schemas }
    pub fn of(&self, api_version: &str, kind: &str) -> Option<Node<'_>> { None }
}
impl<'s> Node<'s> {
    pub fn field(&self, name: &str) -> Option<Node<'s>> { None }
    pub fn items(&self) -> Option<Node<'s>> { None }
    pub fn list(&self) -> Option<ListKind<'s>> { None }
    pub fn is_atomic(&self) -> bool { false }
    pub fn is_whole(&self) -> bool { false }
    pub fn unions(&self) -> impl Iterator<Item = &'s [String]> + use<'s> { std::iter::empty() }
}
