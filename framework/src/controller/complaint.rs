//! Events about invalid objects: those that do not match their type.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType};

use crate::Object;
use crate::cache::{Cache, InvalidObject};
use crate::error::chain;
use crate::status::{Recorder, note};

/// Time between two events: after a bad upgrade there may be many.
const SPACING: Duration = Duration::from_millis(100);

/// Publishes one event for each version of an invalid object, for as long as it is polled.
pub(super) async fn complain<K: Object>(recorder: &Recorder, cache: &Cache<K>, client: Client) -> Infallible {
    let (mut another, mut reported) = (cache.another_misfit(), HashMap::new());
    loop {
        another.mark_unchanged();
        let misfits = cache.misfits();
        let mut reported_before = std::mem::take(&mut reported);
        for misfit in misfits {
            if reported_before.remove(&misfit.key).as_ref() != Some(&misfit.version) {
                publish_event(recorder, cache, &client, &misfit).await;
                tokio::time::sleep(SPACING).await;
            }
            reported.insert(misfit.key, misfit.version);
        }
        if another.changed().await.is_err() {
            // The cache owns the sender.
            return std::future::pending().await;
        }
    }
}

async fn publish_event<K: Object>(recorder: &Recorder, cache: &Cache<K>, client: &Client, misfit: &InvalidObject) {
    let [api_version, kind] = cache.kind().types().map(|(_, value)| Some(value.into_owned()));
    let object = ObjectReference {
        api_version,
        kind,
        name: Some(misfit.key.name().to_owned()),
        namespace: misfit.key.namespace().map(ToOwned::to_owned),
        uid: misfit.uid.clone(),
        resource_version: Some(misfit.version.clone()),
        field_path: None,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: "Unreadable".to_owned(),
        note: Some(note(&format!("not reconciled, because it does not match its type: {}", misfit.why))),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(client, &event, &object).await {
        tracing::warn!(object = %misfit.key, error = chain(&error), "cannot send an event");
    }
}
