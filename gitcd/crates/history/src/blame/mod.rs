//! Who set each field of an object, when, and in which commit.
//!
//! [`History::blame`] starts with the fields of a version and follows each back to the commit that wrote its value ([`walk`]). It
//! works on the fields that a merge works on (`leaves.rs`): maps by key, keyed lists and sets by item, other values whole.
//!
//! Design: `docs/design/history.md`.

mod ancestry;
mod arrival;
mod carry;
mod decide;
mod flushes;
mod leaves;
mod local;
mod origin;
mod path;
#[cfg(test)]
mod tests;
mod versions;
mod walk;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use git2::Oid;
use gitcd_merge::secrecy::{Exposure, SecretKinds};
use gitcd_merge::value::Value;

use self::ancestry::KeyGraph;
use self::carry::Fields;
use self::decide::Decider;
use self::flushes::Flushes;
use self::leaves::Leaf;
pub use self::leaves::{Line, on_one_line};
use self::origin::Describer;
pub use self::origin::Origin;
pub use self::path::{FieldPath, Selector, Step};
use self::versions::Versions;
use self::walk::{Key, Walk, Walked};
use crate::moment::{Moment, Stored};
use crate::{History, HistoryError};

/// What to blame, and what may be returned.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this field and those below it. Without it, all fields except `metadata.managedFields`.
    pub field: Option<Selector>,
    /// Whether the values of Secrets are returned.
    pub show_secrets: bool,
    /// Kinds that are hidden like Secrets.
    pub secret_kinds: SecretKinds,
}

/// The fields of a value, with the commits that wrote them.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The lines of the value in YAML, from top to bottom.
    pub lines: Vec<Line>,
    /// The fields, in the order of the lines.
    pub fields: Vec<BlamedField>,
    /// The commits.
    pub origins: Vec<Origin>,
}

/// A field, and who wrote it.
#[derive(Clone, Debug)]
pub struct BlamedField {
    /// Its path; empty for a value that is not an object.
    pub path: FieldPath,
    /// Its value; `None` if it must not be printed.
    pub value: Option<Value>,
    /// The index of the commit that wrote it.
    pub origin: usize,
    /// Commits of other branches that wrote the same value independently.
    pub also: Vec<Oid>,
}

/// Why a key cannot be blamed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlameError {
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The key does not exist at the moment.
    #[error("the key does not exist at revision {revision}")]
    NoKey {
        /// The revision.
        revision: i64,
    },
    /// The value has no such field.
    #[error("there is no field {selector}: {near}")]
    NoField {
        /// The requested field.
        selector: String,
        /// The fields that exist instead.
        near: String,
    },
}

impl History {
    /// Returns who wrote each field of the value that a whole key has at a moment.
    ///
    /// Reads one small commit for each flush back to the creation of the key, the versions of the key, and where branches were
    /// merged, each commit that came from another one. The history of a shallow clone ends where the clone does; its last commits
    /// are boundaries ([`Origin::is_boundary`]).
    ///
    /// # Errors
    /// [`BlameError`].
    pub fn blame(&self, moment: &Moment, key: &[u8], options: &Options) -> Result<Blame, BlameError> {
        let missing = || BlameError::NoKey { revision: moment.revision };
        let stored = self.stored(moment, key)?.ok_or_else(missing)?;
        let relative = self.relative(key);
        let mut versions = Versions::new(self, relative, relative.map(|_| moment.commit.tree))?;
        let bytes = self.value(stored.blob, None)?;
        let exposure = if options.show_secrets {
            Exposure::Open
        } else {
            options.secret_kinds.of_change(self.below_prefix(key), [Some(&bytes), None])
        };
        let version = versions.get(stored.blob)?;
        let (leaves, lines) = match version.object() {
            Some(object) => leaves::of(object, versions.node(object), exposure),
            None => leaves::opaque(&bytes),
        };
        let (leaves, lines) = selected(leaves, lines, options.field.as_ref())?;
        let fields: Fields = leaves.iter().map(|leaf| leaf.at.clone()).enumerate().collect();
        let mut flushes = Flushes::new(self, moment.flushes());
        let mut decider = Decider::new(self, key, relative.unwrap_or_default())?;
        let walked = match relative {
            Some(relative) => {
                let key = Key { whole: key, relative };
                let start = is_within(moment, &stored).then_some(0);
                let mut walk = Walk::new(self, &key, flushes, decider)?;
                walk.run(stored.commit, stored.blob, fields, start, &mut versions)?;
                let found;
                (found, flushes, decider) = walk.into_parts();
                found
            }
            None => self.walk_local(key, &stored, fields, &mut flushes, &mut versions)?,
        };
        let mut last = last(&mut decider.graph, &walked)?;
        let (mut writers, mut numbers) = (Vec::new(), HashMap::new());
        let mut blamed = Vec::with_capacity(leaves.len());
        for (number, Leaf { path, value, .. }) in leaves.into_iter().enumerate() {
            // Every field arrives at a commit that wrote it, or at the end of the history.
            let Some((writer, also)) = last.remove(&number) else {
                return Err(HistoryError::object(stored.commit, format!("no commit wrote {path}")).into());
            };
            let origin = *numbers.entry(writer).or_insert_with(|| {
                writers.push(&walked.writers[&writer]);
                writers.len() - 1
            });
            let value = path.is_shown(exposure).then(|| value.into_owned());
            blamed.push(BlamedField { path, value, origin, also });
        }
        let origins = Describer::new(self, key, flushes, &mut decider.graph)?.describe(&writers)?;
        Ok(Blame { lines, fields: blamed, origins })
    }
}

/// Returns whether the value was written within the newest flush that the moment knows, so that no flush describes its commit.
fn is_within(moment: &Moment, stored: &Stored) -> bool {
    let flushes = moment.flushes();
    flushes.len() > 1 && flushes.iter().all(|flush| flush.data != stored.commit)
}

/// Keeps the selected fields, without the indentation of the first of them.
fn selected<'v>(
    leaves: Vec<Leaf<'v>>,
    lines: Vec<Line>,
    selector: Option<&Selector>,
) -> Result<(Vec<Leaf<'v>>, Vec<Line>), BlameError> {
    let is_selected = |path: &FieldPath| match selector {
        Some(selector) => selector.selects(path) && (!path.is_managed_fields() || selector.has_managed_fields()),
        None => !path.is_managed_fields(),
    };
    let kept = leaves.iter().enumerate().filter(|(_, leaf)| is_selected(&leaf.path));
    let numbers: HashMap<usize, usize> = kept.map(|(number, _)| number).zip(0..).collect();
    if let (true, Some(selector)) = (numbers.is_empty(), selector) {
        let near = path::near(selector, leaves.iter().map(|leaf| &leaf.path));
        return Err(BlameError::NoField { selector: selector.to_string(), near });
    }
    let kept = leaves.into_iter().enumerate().filter(|(number, _)| numbers.contains_key(number));
    let kept = kept.map(|(_, leaf)| leaf).collect();
    let lines = lines.into_iter().filter(|line| is_selected(&line.path));
    let mut lines: Vec<Line> =
        lines.map(|line| Line { field: line.field.map(|number| numbers[&number]), ..line }).collect();
    let indent = |line: &Line| line.label.len() - line.label.trim_start().len();
    let indent = lines.iter().map(indent).min().unwrap_or_default();
    lines.iter_mut().for_each(|line| drop(line.label.drain(..indent)));
    Ok((kept, lines))
}

/// Limit on the commits whose order is computed because some field has several writers; older ones are not compared.
const COMPARED: usize = 1024;

/// Returns for each field the commit that wrote it last, and those that wrote the same value independently.
fn last(graph: &mut KeyGraph<'_>, walked: &Walked) -> Result<BTreeMap<usize, (Oid, Vec<Oid>)>, HistoryError> {
    let time = |oid: &Oid| (walked.writers[oid].commit.time, *oid);
    let contested: BTreeSet<Oid> =
        walked.written.values().filter(|written| written.len() > 1).flatten().copied().collect();
    let mut contested: Vec<Oid> = contested.into_iter().collect();
    contested.sort_by_key(|oid| Reverse(time(oid)));
    contested.truncate(COMPARED);
    let numbers: HashMap<Oid, usize> = contested.iter().copied().zip(0..).collect();
    let reached = graph.reached_from(&contested)?;
    let mut found = BTreeMap::new();
    for (field, written) in &walked.written {
        let is_behind = |one: &Oid, other: &Oid| {
            one != other && numbers.get(other).is_some_and(|number| reached.get(one).is_some_and(|by| by.has(*number)))
        };
        let is_last = |one: &&Oid| numbers.contains_key(*one) && !written.iter().any(|other| is_behind(one, other));
        let mut last: Vec<Oid> = written.iter().filter(is_last).copied().collect();
        // None of these has seen another one: the latest, as a merge decides by default.
        last.sort_by_key(time);
        let writer = last.pop().or_else(|| written.iter().copied().max_by_key(time));
        found.extend(writer.map(|writer| (*field, (writer, last))));
    }
    Ok(found)
}
