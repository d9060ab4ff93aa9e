//! Branches that follow one another, in one process: their final content, and what their watchers saw.

#![expect(clippy::unwrap_used, reason = "a failure of the harness fails the test")]

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
