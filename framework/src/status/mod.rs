//! Status conditions, for users, `kubectl wait` and kstatus.
//!
//! A [`Report`] is the result of a reconcile. It becomes the conditions `Ready`, `Reconciling` and `Stalled`: `Ready` is
//! always present, the other two only while they are true, as kstatus expects. The report is compared with the conditions
//! before it, so an unchanged report writes nothing, and only transitions send events. Conditions of your own are part of a
//! report, too ([`Report::and`]).
//!
//! A [`StatusReconciler`](crate::StatusReconciler) returns a report, and its controller writes it. A [`StatusWriter`] writes one at any
//! other time: for a step that others must see before the reconcile ends, or without a controller.

mod conditioned;
mod recorder;
mod writer;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::{Schema, SchemaGenerator, json_schema};

pub use self::conditioned::{ConditionedStatus, NoFields};
pub(crate) use self::recorder::Recorder;
pub(crate) use self::writer::note;
pub use self::writer::{Conditions, StatusWriter, settle};
use crate::{Failure, Retry};

/// Maximum length of a condition's message.
const MOST_CHARACTERS: usize = 32_768;

/// The object matches its desired state.
pub const READY: &str = "Ready";
/// It is in progress.
pub const RECONCILING: &str = "Reconciling";
/// It makes no progress before something changes.
pub const STALLED: &str = "Stalled";

/// The result of a reconcile, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    stage: Stage,
    reason: String,
    message: String,
    warns: bool,
    own: Vec<OwnCondition>,
}

/// A condition besides those of the framework.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnCondition {
    type_: &'static str,
    is: bool,
    reason: String,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ready,
    Reconciling,
    Stalled,
    Unchanged,
}

/// A condition whose status changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Type of the condition.
    pub condition: &'static str,
    /// `True`, `False`, or empty if it was absent.
    pub from: String,
    /// `True`, `False`, or empty if it is removed.
    pub to: String,
}

impl Report {
    /// Creates a report that the object matches its desired state. `reason` is a word in upper camel case.
    pub fn ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Stage::Ready, reason.into(), message.into())
    }

    /// Creates a report that the object is in progress: something is being created or rolled out, which is nothing wrong.
    pub fn reconciling(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Stage::Reconciling, reason.into(), message.into())
    }

    /// Creates a report that the object makes no progress before something changes; a [warning](Self::warns).
    pub fn stalled(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Stage::Stalled, reason.into(), message.into()).warns(true)
    }

    /// Creates a report that leaves the conditions, and the generation that they are about, as they are: if nothing was found out.
    /// Only those that are [added](Self::and) to it change.
    pub fn unchanged() -> Self {
        Self::new(Stage::Unchanged, String::new(), String::new())
    }

    fn new(stage: Stage, reason: String, message: String) -> Self {
        Self { stage, reason, message, warns: false, own: Vec::new() }
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        self.stage == Stage::Unchanged
    }

    /// Sets the type of the event: `Warning` for failures, `Normal` for states that a user requested.
    #[must_use]
    pub fn warns(mut self, warns: bool) -> Self {
        self.warns = warns;
        self
    }

    /// Adds a condition of your own, besides `Ready`, `Reconciling` and `Stalled`: `True` or `False`, for this generation of the
    /// object. The time of its last transition changes only with its status. The last of several with one type counts. It is
    /// written with the status, and sends no event.
    ///
    /// A report that does not name the type (that of an error never does) leaves the condition as it is in the status, if the
    /// type is one of [`StatusReconciler::conditions`](crate::StatusReconciler::conditions) or
    /// [`StatusWriter::condition`]. Otherwise the next write without it removes the condition.
    ///
    /// # Panics
    /// If the type is one of the three: those are what the report itself says.
    #[must_use]
    pub fn and(mut self, type_: &'static str, is: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        assert_own(type_);
        self.own.retain(|own| own.type_ != type_);
        self.own.push(OwnCondition { type_, is, reason: reason.into(), message: message.into() });
        self
    }

    /// Returns whether it has a condition of this type that was [added](Self::and).
    pub(crate) fn names(&self, type_: &str) -> bool {
        self.own.iter().any(|own| own.type_ == type_)
    }

    /// Creates a report of a reconcile's result: ready on success, stalled if only a change helps, reconciling otherwise. A
    /// failure is a [warning](Self::warns); what waits for something is not.
    pub fn of<T, E: Failure>(result: &Result<T, E>) -> Self {
        let Err(error) = result else { return Self::ready("Succeeded", "") };
        match error.retry() {
            Retry::Terminal => Self::stalled(error.reason(), crate::error::chain(error)),
            Retry::Waiting { on, .. } => Self::reconciling(error.reason(), format!("waiting for {on}")),
            Retry::BackOff | Retry::NotBefore(_) => {
                Self::reconciling(error.reason(), crate::error::chain(error)).warns(true)
            }
        }
    }

    /// Puts the report into `conditions`, for this generation of the object. Returns the transitions. Conditions of other
    /// types stay.
    pub fn put_on(&self, conditions: &mut Vec<Condition>, generation: Option<i64>, now: Timestamp) -> Vec<Transition> {
        let state = |is: bool, otherwise| if is { "True" } else { otherwise };
        let [ready, reconciling, stalled] =
            [Stage::Ready, Stage::Reconciling, Stage::Stalled].map(|stage| self.stage == stage);
        let stages =
            [(READY, state(ready, "False")), (RECONCILING, state(reconciling, "")), (STALLED, state(stalled, ""))];
        let stages = stages.into_iter().filter(|_| !self.is_unchanged());
        let stages = stages.map(|(condition, to)| (condition, to, &self.reason, &self.message));
        let own = self.own.iter().map(|own| (own.type_, state(own.is, "False"), &own.reason, &own.message));
        let mut transitions = Vec::new();
        for (condition, to, reason, message) in stages.chain(own) {
            let index = conditions.iter().position(|there| there.type_ == condition);
            let from = index.map_or(String::new(), |index| conditions[index].status.clone());
            let since = index.filter(|_| from == to).map(|index| conditions[index].last_transition_time.clone());
            let next = Condition {
                type_: condition.to_owned(),
                status: to.to_owned(),
                reason: reason.clone(),
                message: cut(message),
                observed_generation: generation,
                // Objects have times in seconds; a finer time would differ when it is read back.
                last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
            };
            match (index, to) {
                (None, "") => {}
                (Some(index), "") => drop(conditions.remove(index)),
                (Some(index), _) => conditions[index] = next,
                (None, _) => conditions.push(next),
            }
            if from != to {
                transitions.push(Transition { condition, from, to: to.to_owned() });
            }
        }
        transitions
    }
}

/// # Panics
/// If this type of a condition is the framework's.
pub(crate) fn assert_own(type_: &str) {
    assert!(![READY, RECONCILING, STALLED].contains(&type_), "{type_} is not a condition of your own");
}

/// Cuts a message to the length that the apiserver accepts: a rejected status reports nothing.
fn cut(message: &str) -> String {
    match message.char_indices().nth(MOST_CHARACTERS) {
        None => message.to_owned(),
        Some(_) => message.chars().take(MOST_CHARACTERS - 1).chain(['…']).collect(),
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Implements [`Conditions`] for a status of your own with the fields `conditions: Vec<Condition>` and
/// `observed_generation: Option<i64>`. A [`ConditionedStatus`](crate::status::ConditionedStatus) has them already.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
///
/// #[derive(Default)]
/// struct TankStatus {
///     observed_generation: Option<i64>,
///     conditions: Vec<Condition>,
/// }
///
/// trishanku_framework::impl_conditions!(TankStatus);
/// ```
#[macro_export]
macro_rules! impl_conditions {
    ($status:ty) => {
        impl $crate::status::Conditions for $status {
            fn conditions(&mut self) -> &mut ::std::vec::Vec<$crate::status::Condition> {
                &mut self.conditions
            }

            fn observed_generation(&mut self) -> &mut ::std::option::Option<i64> {
                &mut self.observed_generation
            }
        }
    };
}

/// Returns the schema of a list of conditions, for `#[schemars(schema_with = "…")]`. The list is a map by type, so that
/// several controllers can each have their own.
pub fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316, "description": "Type of the condition, in upper camel case."},
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Status of the condition."
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "description": "Reason for the last transition, in upper camel case."
                },
                "message": {"type": "string", "maxLength": 32768, "description": "Details for people."},
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed."
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "Generation of the object that the condition is about."
                }
            }
        }
    })
}

/// Returns the schema of an object with any fields, for `#[schemars(schema_with = "…")]`: for fields whose types are
/// Kubernetes' own, such as a `PodTemplateSpec`, and have no schema here. The apiserver keeps all of their fields, and checks none.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn shown(conditions: &[Condition]) -> Vec<String> {
        let show = |condition: &Condition| {
            let Time(since) = condition.last_transition_time;
            format!("{}={} {} since {}", condition.type_, condition.status, condition.reason, since.as_second())
        };
        conditions.iter().map(show).collect()
    }

    #[test]
    fn ready_is_always_there_and_the_others_while_they_are_true() {
        let mut conditions = Vec::new();
        Report::reconciling("Filling", "").put_on(&mut conditions, Some(1), second(10));
        assert_eq!(shown(&conditions), ["Ready=False Filling since 10", "Reconciling=True Filling since 10"]);
        Report::stalled("Broken", "").put_on(&mut conditions, Some(1), second(20));
        assert_eq!(shown(&conditions), ["Ready=False Broken since 10", "Stalled=True Broken since 20"]);
        Report::ready("Full", "").put_on(&mut conditions, Some(2), second(30));
        assert_eq!(shown(&conditions), ["Ready=True Full since 30"]);
        assert_eq!(conditions[0].observed_generation, Some(2));
    }

    #[test]
    fn a_report_that_nothing_was_found_out_changes_nothing() {
        let mut conditions = Vec::new();
        Report::ready("Full", "").put_on(&mut conditions, Some(1), second(10));
        let before = conditions.clone();
        assert!(Report::unchanged().put_on(&mut conditions, Some(2), second(20)).is_empty());
        assert_eq!(conditions, before);
    }

    #[test]
    fn an_equal_condition_changes_nothing_and_only_transitions_are_reported() {
        let mut conditions = vec![Condition { type_: "Theirs".to_owned(), status: "True".to_owned(), ..other() }];
        let transitions = Report::ready("Full", "").put_on(&mut conditions, Some(1), second(10));
        let expected = Transition { condition: READY, from: String::new(), to: "True".to_owned() };
        assert_eq!(transitions, [expected]);
        let before = conditions.clone();
        assert!(Report::ready("Full", "").put_on(&mut conditions, Some(1), second(20)).is_empty());
        assert_eq!(conditions, before);
        assert!(Report::ready("Fuller", "").put_on(&mut conditions, Some(1), second(20)).is_empty());
        assert_eq!(shown(&conditions), ["Theirs=True x since 0", "Ready=True Fuller since 10"]);
    }

    #[test]
    fn conditions_of_ones_own_change_their_time_with_their_status_and_stay_where_no_report_names_them() {
        let mut conditions = Vec::new();
        let report = Report::ready("Full", "").and("Tight", false, "Old", "").and("Tight", true, "Sealed", "");
        let transitions = report.put_on(&mut conditions, Some(1), second(10));
        let named: Vec<_> = transitions.iter().map(|transition| (transition.condition, &*transition.to)).collect();
        assert_eq!(named, [("Ready", "True"), ("Tight", "True")]);
        assert!(report.put_on(&mut conditions, Some(2), second(20)).is_empty());
        assert_eq!(shown(&conditions), ["Ready=True Full since 10", "Tight=True Sealed since 10"]);
        assert_eq!(conditions[1].observed_generation, Some(2));
        Report::ready("Full", "").put_on(&mut conditions, Some(3), second(30));
        assert_eq!((shown(&conditions).len(), conditions[1].observed_generation), (2, Some(2)), "it stays as it was");
        // Nothing was found out but this.
        Report::unchanged().and("Tight", false, "Cracked", "a crack").put_on(&mut conditions, Some(4), second(40));
        assert_eq!(shown(&conditions), ["Ready=True Full since 10", "Tight=False Cracked since 40"]);
        assert_eq!((&*conditions[1].message, conditions[0].observed_generation), ("a crack", Some(3)));
    }

    #[test]
    #[should_panic(expected = "Ready is not a condition of your own")]
    fn what_the_report_itself_says_cannot_be_added_to_it() {
        drop(Report::stalled("Broken", "").and(READY, true, "Full", ""));
    }

    #[test]
    fn a_message_is_as_long_as_an_apiserver_takes() {
        let mut conditions = Vec::new();
        Report::reconciling("Refused", "ä".repeat(40_000)).put_on(&mut conditions, None, second(1));
        let message = &conditions[0].message;
        assert_eq!((message.chars().count(), message.ends_with("ä…")), (32_768, true));
    }

    fn other() -> Condition {
        Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: "x".to_owned(),
            status: String::new(),
            type_: String::new(),
        }
    }
}
