//! The page on a real branch, by HTTP.

mod client;
mod commits;
mod health;
mod health_source;
mod hostile;
mod kinds;
mod live;
mod login;
mod rights;
mod world;
