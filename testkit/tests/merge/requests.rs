//! Requests to an object, as clients of kube-apiserver send them.
//!
//! A request is for one object, by its uid: it does not affect another object that has the same name later. An update, and a
//! patch with a whole list, reads the object first and changes what it read, as clients do that retry after a conflict.

use std::fmt;

use http::Method;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::edits::{Edit, Step, join, json_patch, merge_patch};
use crate::kinds::{Field, Kind};
use crate::world::{Refusal, World, body};

/// The verb and body type of an edit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verb {
    Put,
    Merge,
    Json,
    Strategic,
    /// Server-side apply; with `force`, it takes over fields from other managers.
    Apply {
        force: bool,
        upsert: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create(Value),
    Edit { verb: Verb, status: bool, edits: Vec<Edit> },
    Scale(i64),
    Bind(&'static str),
    Delete { grace: Option<i64>, propagation: Option<&'static str> },
}

/// A request of one side.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) side: usize,
    pub(crate) manager: &'static str,
    pub(crate) action: Action,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = ["A", "B"][self.side];
        match &self.action {
            Action::Create(object) => write!(f, "{side}: create {object}"),
            Action::Edit { verb, status, edits } => {
                write!(f, "{side}: {verb:?} as {}", self.manager)?;
                if *status {
                    write!(f, " of status")?;
                }
                for edit in edits {
                    let value = edit.value.as_ref().map_or_else(|| "(removed)".to_owned(), Value::to_string);
                    write!(f, "; {} = {value}", path(edit))?;
                }
                Ok(())
            }
            Action::Scale(replicas) => write!(f, "{side}: scale to {replicas}"),
            Action::Bind(node) => write!(f, "{side}: bind to {node}"),
            Action::Delete { grace, propagation } => {
                write!(f, "{side}: delete, grace {grace:?}, propagation {propagation:?}")
            }
        }
    }
}

fn path(edit: &Edit) -> String {
    let steps = edit.path.iter().map(|step| match step {
        Step::Field(name) => name.clone(),
        Step::Item(keys) => {
            format!("[{}]", keys.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(","))
        }
        Step::Element(text) => format!("[={text}]"),
    });
    steps.collect::<Vec<_>>().join(".")
}

/// The target of requests: the name of an object in a namespace, and the uid that each side means.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// By side; `None` if the side has seen no object.
    pub(crate) uids: [Option<String>; 2],
    /// The object in the last response, if any. There are no other writers.
    pub(crate) seen: Option<Value>,
}

impl Target {
    /// Returns the object from kube-apiserver.
    pub(crate) async fn look(&mut self, world: &World, kind: &Kind) -> Result<Value, Refusal> {
        if self.seen.is_none() {
            self.seen = Some(world.send(Method::GET, &kind.path(&self.namespace, &self.name), None).await?);
        }
        Ok(self.seen.clone().expect("it was stored above"))
    }

    /// Stores a response that is the object.
    fn answered(&mut self, kind: &Kind, answer: Value) {
        self.seen = (answer["kind"] == kind.kind).then_some(answer);
    }
}

/// A uid that no object has.
const NO_OBJECT: &str = "00000000-0000-4000-8000-00000000ffff";

fn refused(message: &str) -> Refusal {
    Refusal { message: message.to_owned() }
}

fn uid(object: &Value) -> Option<String> {
    Some(object["metadata"]["uid"].as_str()?.to_owned())
}

impl Request {
    /// Returns the request without edits that changed nothing, such as the removal of a default, unless there are no others.
    pub(crate) fn effective(mut self, before: Option<&Value>, after: Option<&Value>) -> Self {
        if let (Action::Edit { verb, edits, .. }, Some(before), Some(after)) = (&mut self.action, before, after)
            && !matches!(verb, Verb::Apply { .. })
        {
            // Write-only fields cannot be compared.
            let is_written_only = |edit: &Edit| edit.path.first() == Some(&Step::Field("stringData".to_owned()));
            let did = |edit: &Edit| is_written_only(edit) || edit.at(before) != edit.at(after);
            if edits.iter().any(did) {
                edits.retain(did);
            }
        }
        self
    }

    /// Returns whether it is an apply that does not take over fields of other managers.
    pub(crate) fn is_unforced(&self) -> bool {
        matches!(self.action, Action::Edit { verb: Verb::Apply { force: false, .. }, .. })
    }

    /// Returns the request with force.
    pub(crate) fn forced(&self) -> Self {
        self.sent_as(|verb| match verb {
            Verb::Apply { upsert, .. } => Verb::Apply { force: true, upsert },
            verb => verb,
        })
    }

    /// Returns updates with one edit each instead.
    pub(crate) fn one_by_one(&self) -> Vec<Self> {
        let Action::Edit { status, edits, verb } = &self.action else { return vec![self.clone()] };
        // An apply cannot request a removal.
        let is_apply = matches!(verb, Verb::Apply { .. });
        let edits = edits.iter().filter(|edit| edit.value.is_some() || !is_apply);
        let update = |edit: &Edit| Action::Edit { verb: Verb::Put, status: *status, edits: vec![edit.clone()] };
        edits.map(|edit| Self { action: update(edit), ..self.clone() }).collect()
    }

    /// Returns updates with one edit each if this is wanted, otherwise the request itself.
    pub(crate) fn one_by_one_if(&self, is_wanted: bool) -> Vec<Self> {
        if is_wanted { self.one_by_one() } else { vec![self.clone()] }
    }

    /// Returns the position in which a request with one edit is least likely to be rejected: finalizers before deletions,
    /// `immutable` last.
    pub(crate) fn turn(&self) -> u8 {
        if self.edits_at("metadata.finalizers") { 0 } else { 1 + u8::from(self.edits_at("immutable")) }
    }

    /// Returns the manager of an apply.
    pub(crate) fn applier(&self) -> Option<&'static str> {
        matches!(self.action, Action::Edit { verb: Verb::Apply { .. }, .. }).then_some(self.manager)
    }

    /// Returns whether it changes this field, or one above or below it.
    pub(crate) fn edits_at(&self, wanted: &str) -> bool {
        match &self.action {
            Action::Scale(_) => wanted == "spec.replicas",
            Action::Edit { edits, .. } => edits.iter().any(|edit| {
                let names = edit.path.iter().map_while(|step| match step {
                    Step::Field(name) => Some(name.as_str()),
                    _ => None,
                });
                let path = names.collect::<Vec<_>>().join(".");
                path.starts_with(wanted) || wanted.starts_with(&path)
            }),
            _ => false,
        }
    }

    pub(crate) fn is_deletion(&self) -> bool {
        matches!(self.action, Action::Delete { .. })
    }

    /// Returns whether it is an apply that creates a missing object.
    pub(crate) fn is_upsert(&self) -> bool {
        matches!(self.action, Action::Edit { verb: Verb::Apply { upsert: true, .. }, .. })
    }

    fn sent_as(&self, otherwise: impl Fn(Verb) -> Verb) -> Self {
        let mut request = self.clone();
        if let Action::Edit { verb, .. } = &mut request.action {
            *verb = otherwise(*verb);
        }
        request
    }

    /// Sends the request, and stores the resulting object of this side in the target.
    pub(crate) async fn send(&self, world: &World, kind: &Kind, target: &mut Target) -> Result<(), Refusal> {
        let path = kind.path(&target.namespace, &target.name);
        let as_manager = format!("?fieldManager={}", self.manager);
        let meant = target.uids[self.side].clone().unwrap_or_else(|| NO_OBJECT.to_owned());
        let (method, path, kind_of_body, content) = match &self.action {
            Action::Create(object) => {
                let collection = kind.path(&target.namespace, "");
                let mut object = object.clone();
                object["metadata"]["name"] = json!(target.name);
                let made = world.send(Method::POST, &(collection + &as_manager), Some((body::JSON, &object))).await;
                target.uids[self.side] = made.as_ref().ok().and_then(uid).or(Some(NO_OBJECT.to_owned()));
                return made.map(|made| target.answered(kind, made));
            }
            Action::Edit { verb, status, edits } => {
                let path = if *status { path + "/status" } else { path };
                match verb {
                    Verb::Put | Verb::Merge | Verb::Json => {
                        let before = target.look(world, kind).await?;
                        if uid(&before).as_ref() != Some(&meant) {
                            return Err(refused("another object has the name"));
                        }
                        let mut after = before.clone();
                        edits.iter().for_each(|edit| edit.apply(&mut after));
                        match verb {
                            Verb::Put => (Method::PUT, path + &as_manager, body::JSON, after),
                            Verb::Merge => {
                                let patch = merge_patch(&before, &after);
                                (Method::PATCH, path + &as_manager, body::MERGE_PATCH, patch)
                            }
                            _ => {
                                let patch = json!(json_patch(&before, &after));
                                (Method::PATCH, path + &as_manager, body::JSON_PATCH, patch)
                            }
                        }
                    }
                    Verb::Strategic => {
                        let mut patch = json!({"metadata": {"uid": meant}});
                        edits.iter().for_each(|edit| join(&mut patch, edit.strategic()));
                        (Method::PATCH, path + &as_manager, body::STRATEGIC_PATCH, patch)
                    }
                    Verb::Apply { force, upsert } => {
                        let mut object = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": target.name}});
                        if *upsert {
                            let mut seed = kind.object(&target.name, &[]);
                            std::mem::swap(&mut object, &mut seed);
                        } else {
                            object["metadata"]["uid"] = json!(meant);
                        }
                        edits.iter().filter_map(Edit::partial).for_each(|part| join(&mut object, part));
                        let path = format!("{path}{as_manager}&force={force}");
                        let applied = world.send(Method::PATCH, &path, Some((body::APPLY_PATCH, &object))).await?;
                        target.uids[self.side] = uid(&applied);
                        target.answered(kind, applied);
                        return Ok(());
                    }
                }
            }
            Action::Scale(replicas) => {
                let patch = json!({"metadata": {"uid": meant}, "spec": {"replicas": replicas}});
                let before = target.look(world, kind).await?;
                if uid(&before).as_ref() != Some(&meant) {
                    return Err(refused("another object has the name"));
                }
                (Method::PATCH, path + "/scale" + &as_manager, body::MERGE_PATCH, patch)
            }
            Action::Bind(node) => {
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": target.name, "uid": meant},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
                (Method::POST, path + "/binding" + &as_manager, body::JSON, binding)
            }
            Action::Delete { grace, propagation } => {
                let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meant}});
                if let Some(grace) = grace {
                    options["gracePeriodSeconds"] = json!(grace);
                }
                if let Some(propagation) = propagation {
                    options["propagationPolicy"] = json!(propagation);
                }
                (Method::DELETE, path, body::JSON, options)
            }
        };
        let answer = world.send(method, &path, Some((kind_of_body, &content))).await?;
        // The response to a deletion is the last state of the object, which may be gone.
        let is_deletion = matches!(self.action, Action::Delete { .. });
        target.answered(kind, if is_deletion { Value::Null } else { answer });
        Ok(())
    }
}

/// Returns random edits, each of which changes `now`.
pub(crate) fn edits(random: &mut StdRng, fields: &[Field], now: &Value, most: usize, removals: bool) -> Vec<Edit> {
    let mut chosen: Vec<Edit> = Vec::new();
    let wanted = random.random_range(1..=most);
    for _ in 0..wanted * 6 {
        let (path, values) = fields.choose(random).expect("every kind has fields");
        let value = (!removals || random.random_bool(0.75)).then(|| values.choose(random).cloned()).flatten();
        let edit = Edit::new(path, value);
        let mut after = now.clone();
        edit.apply(&mut after);
        // Two edits of a request change different fields.
        if after != *now && !chosen.iter().any(|other| path_overlaps(other, &edit)) {
            chosen.push(edit);
        }
        if chosen.len() == wanted {
            break;
        }
    }
    chosen
}

fn path_overlaps(one: &Edit, other: &Edit) -> bool {
    one.path.iter().zip(&other.path).all(|(one, other)| one == other)
}

/// Returns a random request of a side that sees `now`, the object as kube-apiserver returns it.
pub(crate) fn random(random: &mut StdRng, kind: &Kind, side: usize, now: Option<&Value>) -> Option<Request> {
    let own = ["a", "b"][side];
    let manager = *[own, own, own, own, "kubectl", "controller"].choose(random).expect("the list is not empty");
    let request = |action| Some(Request { side, manager, action });
    let Some(now) = now else {
        let edits = edits(random, &kind.fields, &kind.object("", &[]), 3, false);
        if random.random_bool(0.2) {
            return request(Action::Edit { verb: Verb::Apply { force: true, upsert: true }, status: false, edits });
        }
        return request(Action::Create(kind.object("", &edits)));
    };
    let deletions = [None, None, None, Some("Background"), Some("Foreground"), Some("Orphan")];
    match random.random_range(0..100) {
        0..16 => {
            let grace = *[None, None, Some(0), Some(5), Some(60)].choose(random).expect("the list is not empty");
            request(Action::Delete { grace, propagation: *deletions.choose(random).expect("the list is not empty") })
        }
        16..26 if kind.scale => request(Action::Scale(random.random_range(0..6))),
        16..36 if kind.kind == "Pod" => request(Action::Bind(["n1", "n2"].choose(random).expect("there are two"))),
        36..50 if !kind.status.is_empty() => {
            let edits = edits(random, &kind.status, now, 2, true);
            let verb = verb(random, kind);
            (!edits.is_empty()).then(|| request(Action::Edit { verb, status: true, edits })).flatten()
        }
        _ => {
            let most = *[1, 1, 2, 3].choose(random).expect("the list is not empty");
            let edits = edits(random, &kind.fields, now, most, true);
            let verb = verb(random, kind);
            (!edits.is_empty()).then(|| request(Action::Edit { verb, status: false, edits })).flatten()
        }
    }
}

fn verb(random: &mut StdRng, kind: &Kind) -> Verb {
    match random.random_range(0..100) {
        0..30 => Verb::Put,
        30..45 => Verb::Json,
        45..65 if !kind.is_custom() => Verb::Strategic,
        45..80 => Verb::Merge,
        80..92 => Verb::Apply { force: true, upsert: false },
        92..96 => Verb::Apply { force: false, upsert: false },
        _ => Verb::Apply { force: true, upsert: true },
    }
}
