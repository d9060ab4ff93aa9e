//! Branches that follow one another, in one process: what each has in the end, and what its watchers saw.

#![expect(clippy::unwrap_used, reason = "where the harness itself fails, the test ends")]

mod echo;
mod figures;
mod filters;
mod mesh;
mod process;
mod random;
mod secrets;
mod two;
mod watcher;
mod world;
