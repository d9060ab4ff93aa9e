//! What gitcd keeps in Git: paths, value forms and references.
pub mod form;
pub mod path;
pub mod refs;
