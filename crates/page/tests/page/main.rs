//! The page on a real branch, by HTTP.

mod client;
mod commits;
mod hostile;
mod live;
mod login;
mod rights;
mod world;
