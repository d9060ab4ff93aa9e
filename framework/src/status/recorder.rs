//! Events in the API group `events.k8s.io/v1`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as Stored, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client};
use serde_json::json;

/// How long after an event an equal one is part of its series. As in client-go.
const SERIES: Duration = Duration::from_mins(6);

/// Publishes the events of one controller.
///
/// Equal events make one object with a count. kube-runtime's recorder takes events for equal that differ in their note, and
/// keeps the first note; here an event with another note is another event.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    controller: String,
    instance: String,
    series: Arc<Mutex<HashMap<Same, Series>>>,
}

/// What equal events have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Same {
    /// Uid, namespace and name.
    object: [Option<String>; 3],
    is_warning: bool,
    action: String,
    reason: String,
    note: Option<String>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    count: i32,
    last: Instant,
}

impl Recorder {
    /// `instance` is the replica, such as the name of its pod.
    pub(crate) fn new(controller: &str, instance: Option<&str>) -> Self {
        let instance = instance.unwrap_or(controller).to_owned();
        Self { controller: controller.to_owned(), instance, series: Arc::default() }
    }

    /// # Errors
    /// The error of the request.
    pub(crate) async fn publish(&self, client: &Client, event: &Event, about: &ObjectReference) -> kube::Result<()> {
        let same = Same {
            object: [about.uid.clone(), about.namespace.clone(), about.name.clone()],
            is_warning: event.type_ == EventType::Warning,
            action: event.action.clone(),
            reason: event.reason.clone(),
            note: event.note.clone(),
        };
        // Events about objects without a namespace are in this one.
        let api: Api<Stored> = Api::namespaced(client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let now = Timestamp::now();
        let known = self.known(&same);
        let mut next = Series { name: String::new(), count: 1, last: Instant::now() };
        if let Some(known) = known {
            next = Series { count: known.count.saturating_add(1), name: known.name, ..next };
            let series = EventSeries { count: next.count, last_observed_time: MicroTime(now) };
            let patch = Patch::Merge(json!({ "series": series }));
            match api.patch(&next.name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    self.keep(same, next);
                    return Ok(());
                }
                // It has expired.
                Err(kube::Error::Api(status)) if status.is_not_found() => next.count = 1,
                Err(error) => return Err(error),
            }
        }
        let of = about.name.as_deref().unwrap_or(&self.controller);
        next.name = format!("{}.{:x}", subdomain(of), now.as_nanosecond());
        api.create(&PostParams::default(), &self.stored(event, about, &next.name, now)).await?;
        self.keep(same, next);
        Ok(())
    }

    fn known(&self, same: &Same) -> Option<Series> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|_, known| known.last.elapsed() < SERIES);
        series.get(same).cloned()
    }

    fn keep(&self, same: Same, next: Series) {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).insert(same, next);
    }

    fn stored(&self, event: &Event, about: &ObjectReference, name: &str, now: Timestamp) -> Stored {
        let metadata =
            ObjectMeta { name: Some(name.to_owned()), namespace: about.namespace.clone(), ..ObjectMeta::default() };
        let of_type = if event.type_ == EventType::Warning { "Warning" } else { "Normal" };
        Stored {
            metadata,
            action: Some(event.action.clone()),
            event_time: Some(MicroTime(now)),
            note: event.note.clone(),
            reason: Some(event.reason.clone()),
            regarding: Some(about.clone()),
            related: event.secondary.clone(),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(of_type.to_owned()),
            ..Stored::default()
        }
    }
}

/// Returns a name as the beginning of an event's name, which is a DNS subdomain of 253 characters: a `ClusterRole` may have a name
/// with a colon.
fn subdomain(name: &str) -> String {
    let allowed = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '-' | '.') => letter,
        _ => '-',
    };
    let name: String = name.chars().map(allowed).take(220).collect();
    let labels = name.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    labels.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_name_for_its_events() {
        for (name, expected) in
            [("web-1.example", "web-1.example"), ("system:Node-", "system-node"), (".x..-y", "x.y"), ("ä:b", "b")]
        {
            assert_eq!(subdomain(name), expected, "{name}");
        }
        assert_eq!(subdomain(&"n".repeat(253)).len(), 220);
    }
}
