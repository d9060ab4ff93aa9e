//! The programs behind the page: rights, health, undo.

use std::sync::Arc;

use crate::health::Health;
use crate::rights::Rights;
use crate::undo::Undo;

/// The programs behind the page.
#[derive(Clone)]
pub struct Services {
    /// Which objects the user may read.
    pub rights: Arc<dyn Rights>,
    /// Reverts commits; `None` offers no undo.
    pub undo: Option<Arc<dyn Undo>>,
    /// Reports the health of the control plane; `None` if it is not known.
    pub health: Option<Arc<dyn Health>>,
}

impl Services {
    /// Creates services that only read.
    pub fn read_only(rights: Arc<dyn Rights>) -> Self {
        Self { rights, undo: None, health: None }
    }
}
