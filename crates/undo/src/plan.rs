//! The plan: one step for each object.

use std::collections::{BTreeMap, BTreeSet};

use gitcd_history::fields::{self, Field};
use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::{Exposure, SecretKinds};
use serde_json::Value;

use crate::creation::prepared;
use crate::custody::{controller, left_alone, not_created};
use crate::document::{content, is_alike, is_same, is_terminating, over, text};
use crate::fold::{Folded, revert, terminating};
use crate::order;
use crate::owners::{self, Live, repair};
use crate::step::{Action, Step, Wave};
use crate::subject::{Mode, ObjectRef, Subject};

/// Steps in the order in which they are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// One step for each object.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Returns the steps that send requests.
    pub fn requests(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.is_request())
    }

    /// Returns the steps that are blocked.
    pub fn blocked(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| matches!(step.action, Action::Blocked(_)))
    }
}

/// Makes plans.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'p> {
    /// The schemas of the kinds, for merges by field.
    pub schemas: &'p Schemas,
    /// Kinds that are hidden besides Secrets.
    pub secrets: &'p SecretKinds,
    /// What exists now.
    pub live: &'p Live,
}

impl Planner<'_> {
    /// Plans for each subject. Takes a merge for each change.
    pub fn plan(&self, subjects: Vec<Subject>, mode: Mode) -> Plan {
        let mut contents = Vec::new();
        let mut steps = Vec::new();
        for mut subject in subjects {
            contents.push((subject.key.clone(), std::mem::take(&mut subject.contents)));
            let mut step = self.step(&subject, mode);
            if let (Action::Delete { .. }, Some(reason)) = (&step.action, &subject.unlisted) {
                step.block(format!("what would be deleted with it is not known: {reason}"));
            }
            steps.push(step);
        }
        self.keep_back(&mut steps);
        self.repair_owners(&mut steps);
        keep_contents(&mut steps, &contents);
        order::sort(&mut steps);
        Plan { steps }
    }

    fn step(&self, subject: &Subject, mode: Mode) -> Step {
        let identity = subject.identity();
        let step = |action| Step {
            object: identity.clone(),
            action,
            fields: Vec::new(),
            stays: Vec::new(),
            notes: Vec::new(),
            contents: Vec::new(),
            dependents: Vec::new(),
            wave: Wave::default(),
            old_uid: None,
        };
        if let Some(problem) = &subject.problem {
            return step(Action::Blocked(problem.clone()));
        }
        let Some(object) = subject.object() else {
            return step(Action::Nothing("it does not exist".to_owned()));
        };
        if let Some(reason) = left_alone(&subject.key, object) {
            return step(Action::Left(reason));
        }
        let Folded { desired, stays, mut notes, blocked } = match mode {
            Mode::Undo => revert(self.schemas, subject.current.as_ref(), &subject.changes),
            Mode::Restore { prune } => restored(subject, prune),
        };
        if let Some(reason) = blocked {
            return Step { notes, ..step(Action::Blocked(reason)) };
        }
        let action = self.action(&identity, subject.current.as_ref(), desired.as_ref(), &mut notes);
        let old_uid = desired.as_ref().map(|desired| text(desired, "/metadata/uid").to_owned());
        let stays = stays.iter().map(ToString::to_string).collect();
        let mut step = Step { stays, notes, old_uid: old_uid.filter(|uid| !uid.is_empty()), ..step(action) };
        step.fields = self.fields(&step, subject.current.as_ref());
        step
    }

    fn action(
        &self,
        identity: &ObjectRef,
        current: Option<&Value>,
        desired: Option<&Value>,
        notes: &mut Vec<String>,
    ) -> Action {
        match (current, desired) {
            (None, None) => Action::Nothing(notes.pop().unwrap_or_else(|| "it does not exist".to_owned())),
            (None, Some(desired)) if is_terminating(desired) => {
                Action::Nothing("its deletion had been requested before".to_owned())
            }
            (None, Some(desired)) => {
                if let Some(reason) = not_created(desired) {
                    return Action::Left(reason.to_owned());
                }
                let (object, lost) = prepared(identity, desired, &self.live.volumes);
                notes.extend(lost);
                if let Some(owner) = controller(&object) {
                    notes.push(format!("{owner} controls it, and may change it again"));
                }
                Action::Create { object }
            }
            (Some(current), None) if is_terminating(current) => {
                Action::Nothing("it is already being deleted".to_owned())
            }
            (Some(current), None) => {
                if identity.is("", "PersistentVolumeClaim") {
                    notes.push("the data of its volume may be deleted".to_owned());
                }
                Action::Delete { current: current.clone() }
            }
            (Some(current), Some(desired)) => {
                let object = over(current, desired);
                if is_alike(current, &object) {
                    Action::Nothing(notes.pop().unwrap_or_else(|| "nothing is left to change".to_owned()))
                } else if is_terminating(current) {
                    Action::Blocked(terminating(current))
                } else {
                    Action::Update { object, current: current.clone() }
                }
            }
        }
    }

    fn fields(&self, step: &Step, current: Option<&Value>) -> Vec<Field> {
        let to = match &step.action {
            Action::Create { object } | Action::Update { object, .. } => Some(object),
            Action::Delete { .. } => None,
            _ => return Vec::new(),
        };
        let bytes = [current, to].map(|value| value.map(|value| content(value).to_string().into_bytes()));
        let [from, to] = bytes.each_ref().map(|value| value.as_deref());
        let exposures = [from, to].into_iter().flatten().map(|value| self.secrets.of_value(value));
        fields::hidden(fields::between(from, to), exposures.max().unwrap_or(Exposure::Open))
    }

    /// Blocks what would get an owner of which it is not known whether it exists: without its owner, the garbage collector would
    /// delete it. What such an object owns is kept back with it.
    fn keep_back(&self, steps: &mut [Step]) {
        let mut held: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let created: BTreeSet<String> = steps.iter().filter_map(Step::old_uid).collect();
            let reason = |step: &Step| {
                let (object, kept) = match &step.action {
                    Action::Create { object } => (object, Vec::new()),
                    Action::Update { object, current } => (object, owners::of(current)),
                    _ => return None,
                };
                let is_kept = |uid: &String| created.contains(uid) || kept.iter().any(|(_, kept)| kept == uid);
                owners::of(object).into_iter().filter(|(_, uid)| !is_kept(uid)).find_map(|(owner, uid)| {
                    let of_plan = held.get(&uid).map(|owner| format!("its owner {owner} is not created"));
                    let unknown = || {
                        let reason = self.live.unknown.get(&owner)?;
                        Some(format!("whether its owner {} {} exists is not known: {reason}", owner.kind, owner.name))
                    };
                    of_plan.or_else(unknown)
                })
            };
            let reasons: Vec<Option<String>> = steps.iter().map(reason).collect();
            if reasons.iter().all(Option::is_none) {
                return;
            }
            for (step, reason) in steps.iter_mut().zip(reasons) {
                if let Some(reason) = reason {
                    held.extend(step.old_uid().map(|uid| (uid, format!("{} {}", step.object.kind, step.object.name))));
                    step.block(reason);
                }
            }
        }
    }

    fn repair_owners(&self, steps: &mut [Step]) {
        let created: BTreeSet<String> = steps.iter().filter_map(Step::old_uid).collect();
        for step in steps {
            let notes = match &mut step.action {
                Action::Create { object } => repair(object, self.live, &created),
                Action::Update { object, current } => {
                    // What the object has now stays, also a reference to an owner whose kind is not served.
                    let kept = owners::of(current).into_iter().map(|(_, uid)| uid);
                    repair(object, self.live, &kept.chain(created.iter().cloned()).collect())
                }
                _ => continue,
            };
            step.notes.extend(notes);
        }
    }
}

/// Makes an object as it was before the oldest change, whole.
fn restored(subject: &Subject, prune: bool) -> Folded {
    let then = subject.changes.last().and_then(|change| change.before.as_ref());
    let (desired, notes) = match (then, &subject.current) {
        (Some(then), Some(current)) if !is_same(then, current) => {
            (Some(then.clone()), vec!["it was deleted and created again since".to_owned()])
        }
        (None, Some(current)) if !prune => {
            (Some(current.clone()), vec!["it was created since; --prune deletes it".to_owned()])
        }
        (then, _) => (then.cloned(), Vec::new()),
    };
    Folded { desired, notes, ..Folded::default() }
}

/// Blocks the deletion of what contains objects that the plan does not delete.
fn keep_contents(steps: &mut [Step], contents: &[(String, Vec<String>)]) {
    let deleted: BTreeSet<String> = steps
        .iter()
        .filter(|step| matches!(step.action, Action::Delete { .. }))
        .map(|step| step.object.key.clone())
        .collect();
    for step in steps.iter_mut().filter(|step| matches!(step.action, Action::Delete { .. })) {
        let of_step = contents.iter().find(|(key, _)| *key == step.object.key).map(|(_, keys)| keys.as_slice());
        let others = of_step.unwrap_or_default().iter().filter(|key| !deleted.contains(*key));
        step.contents = others.cloned().collect();
        if let Some((first, more)) = step.contents.split_first() {
            let more = match more.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let reason = format!("{first}{more} would be deleted with it; undo these as well, or delete them first");
            step.block(reason);
        }
    }
}
