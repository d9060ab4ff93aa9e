//! Shared parts of the benchmarks: a [`child`] is a measured program, [`process`] and [`machine`] read the kernel's accounting,
//! a [`table`] formats results, the [`document`] collects them, and [`output`] delivers them.

pub mod child;
pub mod document;
pub mod machine;
pub mod output;
pub mod process;
pub mod table;
