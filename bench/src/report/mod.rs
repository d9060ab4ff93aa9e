//! Tables for people and the document that keeps them.

mod branches;
pub(crate) mod compare;
pub(crate) mod document;
mod kube;
mod memory;
pub(crate) mod table;
