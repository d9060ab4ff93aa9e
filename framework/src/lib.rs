//! tmp
pub mod queue;
