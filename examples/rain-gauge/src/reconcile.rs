//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::apply::ApplySet;
use trishanku_framework::cache::Cache;
use trishanku_framework::status::StatusWriter;
use trishanku_framework::{Action, Context, Error, Manager, Reconciler};

use crate::kind::RainGauge;

/// The field manager of server-side apply. It must never change.
const FIELD_MANAGER: &str = "rain-gauge";

/// Keeps a ConfigMap for each object.
pub struct RainGaugeReconciler {
    objects: Arc<Cache<RainGauge>>,
    maps: Arc<Cache<ConfigMap>>,
    status: StatusWriter,
}

impl RainGaugeReconciler {
    /// Creates a reconciler with the caches of this manager.
    pub fn new(manager: &Manager) -> Self {
        Self { objects: manager.cache(), maps: manager.cache(), status: StatusWriter::new(FIELD_MANAGER) }
    }

    async fn apply(&self, object: &RainGauge, context: &Context) -> Result<Action, Error> {
        let mut set = ApplySet::of(object, context.client.clone(), FIELD_MANAGER);
        set.apply(plan(object, context.key.name()), &self.maps).await?;
        // Deletes owned objects that are no longer in the plan.
        set.prune(&self.maps).await?;
        Ok(Action::Change)
    }
}

impl Reconciler for RainGaugeReconciler {
    type Object = RainGauge;
    type Error = Error;

    async fn reconcile(&self, object: Arc<RainGauge>, context: Context) -> Result<Action, Error> {
        let applied = self.apply(&object, &context).await;
        // Users look for failures in the status, so it is written in either case.
        let (before, status) = (object.status.as_ref(), object.status.clone().unwrap_or_default());
        self.status.write_result(&context.client, &self.objects, &*object, before, status, applied).await
    }
}

/// The desired objects: a pure function, easy to test.
fn plan(object: &RainGauge, name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("text".to_owned(), object.spec.text.clone())].into());
    map
}
