//! Writes statuses, if they changed.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use serde::Serialize;
use serde_json::json;

use super::recorder::Recorder;
use super::{READY, RECONCILING, Report, STALLED, Transition};
use crate::cache::Cache;
use crate::error::chain;
use crate::{Failure, Key, Kind, Object};

/// Maximum length of an event's note.
const MOST_NOTE_BYTES: usize = 1024;

/// A status with conditions.
pub trait Conditions {
    /// Returns `status.conditions`.
    fn conditions(&mut self) -> &mut Vec<Condition>;
    /// Returns `status.observedGeneration`.
    fn observed_generation(&mut self) -> &mut Option<i64>;
}

/// Writes the statuses of one controller's objects, and sends events about them.
#[derive(Clone, Debug)]
pub struct StatusWriter {
    manager: String,
    own: BTreeSet<String>,
    events: bool,
    recorder: Recorder,
}

impl StatusWriter {
    /// Creates a writer for this controller. Its name is also that of the field manager, and must never change.
    pub fn new(controller: impl Into<String>) -> Self {
        let (own, manager) = ([READY, RECONCILING, STALLED].map(ToOwned::to_owned).into(), controller.into());
        let recorder = Recorder::new(&manager, None);
        Self { manager, own, events: true, recorder }
    }

    /// Creates a writer with an existing recorder of events, which knows their series.
    pub(crate) fn with_recorder(manager: &str, recorder: Recorder) -> Self {
        Self { recorder, ..Self::new(manager) }
    }

    /// Also writes conditions of this type, whether the report [names](Report::and) it or not. Conditions of other types belong to
    /// other writers, and stay.
    #[must_use]
    pub fn condition(mut self, condition: impl Into<String>) -> Self {
        self.own.insert(condition.into());
        self
    }

    /// Sets the replica that events come from, such as the pod's name.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.recorder = Recorder::new(&self.manager, Some(&instance.into()));
        self
    }

    /// Sends no events. Each is a request that costs as much as the status, and delays the reconcile: for kinds with so many
    /// objects that users do not look at each.
    #[must_use]
    pub fn without_events(mut self) -> Self {
        self.events = false;
        self
    }

    /// As [`write`](Self::write), with the report of a reconcile's `result`, which it returns: an error of the reconcile is never
    /// hidden by one of the status, which is only logged then.
    ///
    /// # Errors
    /// That of the result, or that of the request if the result is no error.
    pub async fn write_result<K, S, T, E>(
        &self,
        client: &Client,
        cache: &Cache<K>,
        object: &K,
        before: Option<&S>,
        status: S,
        result: Result<T, E>,
    ) -> Result<T, E>
    where
        K: Object,
        S: Conditions + Serialize,
        E: Failure + From<kube::Error>,
    {
        let report = Report::of(&result);
        let written = self.write(client, cache, object, before, status, &report).await;
        settle(&Key::of(object), result, written)
    }

    /// Writes `status` with the report in it, unless `before` is the same; returns whether it was written. `cache` is that of
    /// `object`, and learns the response. An event is sent if `Ready` changed or `Stalled` appeared; if that fails, it is only
    /// logged. It is a warning if the report is of something that is [wrong](Report::warns).
    ///
    /// Uses server-side apply: a field that is no longer in `status` is removed, and fields of other managers stay.
    ///
    /// # Errors
    /// The error of the request. A deleted object is not an error.
    pub async fn write<K, S>(
        &self,
        client: &Client,
        cache: &Cache<K>,
        object: &K,
        before: Option<&S>,
        mut status: S,
        report: &Report,
    ) -> kube::Result<bool>
    where
        K: Object,
        S: Conditions + Serialize,
    {
        let (metadata, lists) = (object.meta(), cache.lists());
        let transitions = report.put_on(status.conditions(), metadata.generation, Timestamp::now());
        if !report.is_unchanged() {
            *status.observed_generation() = metadata.generation;
        }
        if let Some(before) = before
            && says_the_same(before, &status).map_err(kube::Error::SerdeError)?
        {
            return Ok(false);
        }
        let mut status = serde_json::to_value(&status).map_err(kube::Error::SerdeError)?;
        if let Some(conditions) = status.get_mut("conditions").and_then(serde_json::Value::as_array_mut) {
            let is_ours = |of: &str| self.own.contains(of) || report.names(of);
            let ours = |condition: &serde_json::Value| condition["type"].as_str().is_some_and(is_ours);
            conditions.retain(ours);
        }
        let key = Key::of(object);
        let api = cache.kind().api(client.clone(), key.namespace());
        let [api_version, kind] = cache.kind().types().map(|(_, value)| value);
        let patch = json!({
            "apiVersion": api_version,
            "kind": kind,
            // Not an object of the same name that was created meanwhile.
            "metadata": {"name": key.name(), "uid": metadata.uid},
            "status": status,
        });
        // Without warnings, which the client drops (KEP-2885).
        let parameters = PatchParams::apply(&self.manager).force().validation_ignore();
        match api.patch_status(key.name(), &parameters, &Patch::Apply(patch)).await {
            // The next reconcile of this object may precede the watch event, and would write the same again.
            Ok(written) => cache.learn(written, lists),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        }
        // One event for all transitions of a report.
        if transitions.iter().any(is_reported) {
            self.publish_event(client, cache.kind(), object, report).await;
        }
        Ok(true)
    }

    async fn publish_event<K>(&self, client: &Client, kind: &Kind<K>, object: &K, report: &Report)
    where
        K: Object,
    {
        if !self.events {
            return;
        }
        let event = Event {
            type_: if report.warns { EventType::Warning } else { EventType::Normal },
            reason: report.reason.clone(),
            note: Some(note(&report.message)).filter(|note| !note.is_empty()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        self.publish(client, kind, object, &event).await;
    }

    /// Publishes an event about an object. If that fails, it is only logged.
    ///
    /// An event that equals one of the last six minutes becomes part of a series: one object in the cluster, with a count.
    pub async fn publish<K: Object>(&self, client: &Client, kind: &Kind<K>, object: &K, event: &Event) {
        if let Err(error) = self.recorder.publish(client, event, &object.object_ref(kind.dynamic())).await {
            tracing::warn!(object = %Key::of(object), error = chain(&error), "cannot send an event");
        }
    }
}

/// Combines the result of a reconcile with that of writing its status: an error of the status must not hide that of the
/// reconcile, which users look for.
///
/// # Errors
/// That of the result, or that of the status if the result is no error.
pub fn settle<T, E: From<kube::Error>>(key: &Key, result: Result<T, E>, written: kube::Result<bool>) -> Result<T, E> {
    match (result, written) {
        (Ok(value), Ok(_)) => Ok(value),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), written) => {
            if let Err(error) = written {
                tracing::warn!(object = %key, error = chain(&error), "cannot write the status of a failed reconcile");
            }
            Err(error)
        }
    }
}

fn is_reported(transition: &Transition) -> bool {
    match transition.condition {
        // A new object is not ready: no transition.
        READY => transition.to == "True" || transition.from == "True",
        STALLED => transition.to == "True",
        _ => false,
    }
}

fn says_the_same<S: Serialize>(one: &S, other: &S) -> serde_json::Result<bool> {
    // Comparing text is fast; maps without an order may be equal and differ as text.
    Ok(serde_json::to_vec(one)? == serde_json::to_vec(other)?
        || serde_json::to_value(one)? == serde_json::to_value(other)?)
}

/// Cuts a message to the length of an event's note.
pub(crate) fn note(message: &str) -> String {
    let mut end = message.len().min(MOST_NOTE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_status_does_not_hide_that_of_the_reconcile() {
        let failed = |message: &str| kube::Error::Service(message.to_owned().into());
        let key = Key::cluster("a");
        let outcome = |result: Result<u8, kube::Error>, written| match settle(&key, result, written) {
            Ok(value) => value.to_string(),
            Err(error) => chain(&error),
        };
        assert_eq!(outcome(Ok(7), Ok(true)), "7");
        assert!(outcome(Ok(7), Err(failed("the status"))).contains("the status"));
        for written in [Ok(false), Err(failed("the status"))] {
            let error = outcome(Err(failed("the pump")), written);
            assert!(error.contains("the pump") && !error.contains("the status"), "{error}");
        }
    }

    #[test]
    fn a_note_is_cut_where_a_letter_ends() {
        let message = "ä".repeat(1000);
        assert_eq!(note(&message).len(), 1024);
        assert_eq!(note(&format!("a{message}")).len(), 1023);
        assert_eq!(note("short"), "short");
    }
}
