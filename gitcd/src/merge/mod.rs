//! Merging branches: by key, then by field, never by line.

pub mod schema;
