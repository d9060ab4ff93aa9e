//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::apply::Owned;
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Error, Kinds, Result, StatusReconciler};

use crate::kind::{RainGauge, RainGaugeStatus};

/// Keeps a ConfigMap for each object.
pub struct RainGaugeReconciler {
    maps: Owned<ConfigMap>,
}

impl RainGaugeReconciler {
    /// Creates a reconciler with the kinds that it owns: a change of such an object reconciles its owner.
    pub fn new(kinds: &mut Kinds<'_>) -> Self {
        Self { maps: kinds.owned() }
    }
}

impl StatusReconciler for RainGaugeReconciler {
    type Object = RainGauge;
    type Error = Error;

    /// The status is written after success and after failure.
    async fn reconcile(
        &self,
        object: Arc<RainGauge>,
        _: &mut RainGaugeStatus,
        context: Context,
    ) -> Result<(Report, Action)> {
        let mut set = context.apply_set(&*object);
        set.apply(plan(&object, context.key.name()), &self.maps).await?;
        // Deletes owned objects that are no longer in the plan.
        set.prune(&self.maps).await?;
        Ok((Report::ready("Succeeded", ""), Action::Change))
    }
}

/// The desired objects: a pure function, easy to test.
fn plan(object: &RainGauge, name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("text".to_owned(), object.spec.text.clone())].into());
    map
}
