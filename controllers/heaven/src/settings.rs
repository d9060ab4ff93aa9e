//! Settings of a controller of heavens.

use std::sync::Arc;

use time::OffsetDateTime;
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;

/// The source of the present time.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Settings of a controller of heavens.
#[derive(Clone)]
pub struct Settings {
    /// The images where a manifest names none.
    pub images: Images,
    /// The manager's own namespace, in which heavens are refused.
    pub own_namespace: OwnNamespace,
    /// The clock for certificates.
    pub clock: Clock,
}

impl Settings {
    pub(crate) fn now(&self) -> OffsetDateTime {
        (self.clock)()
    }
}

impl Default for Settings {
    /// The default images, the system's clock, and heavens in all namespaces.
    fn default() -> Self {
        let (images, own_namespace) = (Images::default(), OwnNamespace::default());
        Self { images, own_namespace, clock: Arc::new(OffsetDateTime::now_utc) }
    }
}
