//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::apply::Owned;
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Error, Kinds, Reported, StatusReconciler};

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
    async fn reconcile(&self, object: Arc<RainGauge>, _: &mut RainGaugeStatus, context: Context) -> Reported<Action> {
        let mut set = context.apply_set(&*object);
        set.apply(plan(&object), &self.maps).await?;
        // Deletes owned objects that are no longer in the plan.
        set.prune_all().await?;
        Ok((Report::ready("Succeeded", ""), Action::Change))
    }
}

/// The desired objects, with the name of their owner if they have none: a pure function, easy to test.
fn plan(object: &RainGauge) -> ConfigMap {
    ConfigMap { data: Some([("text".to_owned(), object.spec.text.clone())].into()), ..ConfigMap::default() }
}
