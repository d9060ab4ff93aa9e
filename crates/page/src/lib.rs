//! A local web page on the history of a control plane: commits, objects, who set which field.
//!
//! A request enters through [`guard`], which checks the host and the cookie and sets the security headers. A handler in
//! [`pages`] reads the branch on a blocking thread ([`work`], [`read`]), asks which of the objects the user may read
//! ([`rights`]), and renders HTML ([`view`]). [`events`] announces new commits. Only [`undo_pages`] change something, by the
//! program that reverts commits ([`undo`]), after a preview.
//!
//! Pages are complete without scripts. The only script follows the events and replaces parts of the page.

mod app;
mod catalog;
mod events;
mod guard;
pub mod health;
mod health_pages;
mod keys;
mod pages;
mod problem;
mod query;
mod read;
pub mod rights;
mod server;
mod services;
mod session;
mod settings;
pub mod undo;
mod undo_pages;
mod view;
mod work;

pub use self::catalog::{Catalog, CatalogError};
pub use self::server::{Page, StartError};
pub use self::services::Services;
pub use self::settings::Settings;
