//! Who set each field of an object, when, and in which commit.
//!
//! [`History::blame`] starts with the fields of a version and follows each back to the commit that wrote its value ([`walk`]). It
//! works on the fields that a merge works on (`leaves.rs`): maps by key, keyed lists and sets by item, other values whole.
//!
//! Design: `docs/design/history.md`.

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

use std::collections::HashMap;

use git2::Oid;
use gitcd_merge::secrecy::{Exposure, SecretKinds};
use gitcd_merge::value::Value;

use self::carry::Fields;
use self::decide::Decider;
use self::flushes::Flushes;
use self::leaves::Leaf;
pub use self::leaves::{Line, on_one_line};
pub use self::origin::Origin;
pub use self::path::{FieldPath, Selector, Step};
use self::versions::Versions;
use self::walk::{Key, Maker, Walk, Walked};
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
        let (leaves, lines) = leaves(&mut versions, &stored, &bytes, exposure)?;
        let (leaves, lines) = selected(&leaves, lines, options.field.as_ref())?;
        let fields: Fields = leaves.iter().map(|leaf| leaf.at.clone()).enumerate().collect();
        let mut flushes = Flushes::new(self, moment.flushes());
        let paths: Vec<FieldPath> = leaves.iter().map(|leaf| leaf.path.clone()).collect();
        let mut decider = Decider::new(self, relative.unwrap_or_default(), paths)?;
        let walked = match relative {
            Some(relative) => {
                let key = Key { whole: key, relative };
                let start = is_within(moment, &stored).then_some(0);
                let mut walk = Walk::new(self, key, flushes, decider)?;
                walk.run(stored.commit, stored.blob, fields, start, &mut versions)?;
                let found;
                (found, flushes, decider) = walk.into_parts();
                found
            }
            None => self.walk_local(key, &stored, fields, &mut flushes, &mut versions)?,
        };
        let mut origins = Origins { history: self, key, flushes, found: Vec::new(), by_commit: HashMap::new() };
        let mut blamed = Vec::with_capacity(leaves.len());
        for (number, Leaf { path, value, .. }) in leaves.into_iter().enumerate() {
            let written: Vec<Oid> = walked.written.get(&number).into_iter().flatten().copied().collect();
            let (writer, also) = last(&mut decider, &walked, &written)?;
            let origin = match writer {
                Some(writer) => origins.index(&walked.makers[&writer])?,
                // Every field arrives at a commit that wrote it, or at the end of the history.
                None => return Err(HistoryError::object(stored.commit, format!("no commit wrote {path}")).into()),
            };
            let value = exposure.shows(&path.to_string()).then_some(value);
            blamed.push(BlamedField { path, value, origin, also });
        }
        Ok(Blame { lines, fields: blamed, origins: origins.found })
    }
}

/// Returns whether the value was written within the newest flush that the moment knows, so that no flush describes its commit.
fn is_within(moment: &Moment, stored: &Stored) -> bool {
    let flushes = moment.flushes();
    flushes.len() > 1 && flushes.iter().all(|flush| flush.data != stored.commit)
}

/// Returns the fields and the lines of a value.
fn leaves(
    versions: &mut Versions<'_>,
    stored: &Stored,
    bytes: &[u8],
    exposure: Exposure,
) -> Result<(Vec<Leaf>, Vec<Line>), HistoryError> {
    let version = versions.get(stored.blob)?;
    Ok(match version.object() {
        Some(object) => leaves::of(object, versions.node(object), exposure),
        None => leaves::opaque(bytes),
    })
}

/// Keeps the selected fields, without the indentation of the first of them.
fn selected(
    leaves: &[Leaf],
    lines: Vec<Line>,
    selector: Option<&Selector>,
) -> Result<(Vec<Leaf>, Vec<Line>), BlameError> {
    let is_selected = |path: &FieldPath| match selector {
        Some(selector) => selector.selects(path) && (!path.is_managed_fields() || selector.has_managed_fields()),
        None => !path.is_managed_fields(),
    };
    let mut numbers = HashMap::new();
    let mut kept = Vec::new();
    for (number, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| is_selected(&leaf.path)) {
        numbers.insert(number, kept.len());
        kept.push(leaf.clone());
    }
    if let (true, Some(selector)) = (kept.is_empty(), selector) {
        let near = path::near(selector, leaves.iter().map(|leaf| &leaf.path));
        return Err(BlameError::NoField { selector: selector.to_string(), near });
    }
    let lines = lines.into_iter().filter(|line| is_selected(&line.path));
    let mut lines: Vec<Line> =
        lines.map(|line| Line { field: line.field.map(|number| numbers[&number]), ..line }).collect();
    let indent = |line: &Line| line.label.len() - line.label.trim_start().len();
    let indent = lines.iter().map(indent).min().unwrap_or_default();
    lines.iter_mut().for_each(|line| drop(line.label.drain(..indent)));
    Ok((kept, lines))
}

/// Returns the commit that wrote a field last, and those that wrote the same value independently.
fn last(decider: &mut Decider<'_>, walked: &Walked, written: &[Oid]) -> Result<(Option<Oid>, Vec<Oid>), HistoryError> {
    let mut last = Vec::new();
    for one in written {
        let mut is_replaced = false;
        for other in written.iter().filter(|other| *other != one) {
            is_replaced = is_replaced || decider.is_behind(*one, *other)?;
        }
        last.extend((!is_replaced).then_some(*one));
    }
    // None of these has seen another one: the latest, as a merge decides by default.
    last.sort_by_key(|oid| (walked.makers[oid].commit.time, *oid));
    Ok((last.pop(), last))
}

/// The descriptions of commits, each made once.
struct Origins<'h> {
    history: &'h History,
    key: &'h [u8],
    flushes: Flushes<'h>,
    found: Vec<Origin>,
    by_commit: HashMap<Oid, usize>,
}

impl Origins<'_> {
    fn index(&mut self, maker: &Maker) -> Result<usize, HistoryError> {
        if let Some(index) = self.by_commit.get(&maker.commit.oid) {
            return Ok(*index);
        }
        self.found.push(self.history.origin(self.key, maker, &mut self.flushes)?);
        self.by_commit.insert(maker.commit.oid, self.found.len() - 1);
        Ok(self.found.len() - 1)
    }
}
