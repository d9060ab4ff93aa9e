//! What users undo, and what they find afterwards.

mod edits;
mod kinds;
mod merges;
mod obstacles;
mod places;
