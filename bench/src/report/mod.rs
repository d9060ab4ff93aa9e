//! Tables for people, and sections of the document.

mod branches;
pub(crate) mod compare;
mod headless;
mod kube;
mod memory;

pub(crate) use gitcd_bench::{document, table};
