//! Tables for the terminal, and sections of the document.

mod branches;
pub(crate) mod compare;
mod growth;
mod headless;
mod hostile;
mod kube;
mod memory;
mod storage;

pub(crate) use gitcd_bench::{document, table};
