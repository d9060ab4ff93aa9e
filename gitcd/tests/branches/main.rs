//! Branches that follow one another, in one process: what each has in the end, and what its watchers saw.

mod figures;
mod random;
mod two;
mod watcher;
mod world;
