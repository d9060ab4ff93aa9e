//! What users undo, and what they find afterwards.

mod edits;
mod kinds;
mod obstacles;
mod places;
