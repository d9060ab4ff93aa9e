//! What measurements have in common: a [`child`] is a program that is measured, [`process`] and [`machine`] are what the kernel tells about it and
//! everything else, a [`table`] is for people, the [`document`] keeps what came out, and [`output`] is where it goes.

pub mod child;
pub mod document;
pub mod machine;
pub mod output;
pub mod process;
pub mod table;
