//! Blame on branches with real commits and merges.
//!
//! Environment:
//! - `GITCD_BLAME_CASES`: number of random graphs.
//! - `GITCD_BLAME_SEED`: seed of the first one; the following seeds count up. A failed case prints its seed.

mod cases;
mod fields;
mod found;
mod graph;
mod hostile;
mod log;
mod merges;
mod model;
mod revisions;
mod stopped;
mod verified;
mod world;
