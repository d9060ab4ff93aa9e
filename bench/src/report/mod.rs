//! Tables for people and the document that keeps them.

pub(crate) mod compare;
pub(crate) mod document;
pub(crate) mod table;
