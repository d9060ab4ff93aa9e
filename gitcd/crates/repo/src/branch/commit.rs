//! Turns revisions into objects of the open pack.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use git2::Oid;
use gitcd_core::keyspace::Placement;
use gitcd_core::path;
use gitcd_merge::form;

use super::super::actor::{self, Attribution};
use super::super::entries::Entry;
use super::super::key_record::{KeyRecord, Location};
use super::super::message::{self, Subject, Verb};
use super::super::pack::{self, Kind};
use super::super::{delta, load};
use super::{Action, Branch, Change, CommitError, Record, Revisions, Value};

impl Branch {
    /// Adds revisions to the open pack: values, changed directories, and one data commit unless only local keys changed.
    ///
    /// Takes a few microseconds for each change and directory level, plus the time to hash every changed directory. Does not
    /// access the disk.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was added.
    pub fn commit(&mut self, revisions: &Revisions) -> Result<(), CommitError> {
        self.commit_of(revisions, &[])
    }

    /// Does the same, and names who made the changes in the message of the commit.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was added.
    pub fn commit_of(&mut self, revisions: &Revisions, actors: &[Attribution]) -> Result<(), CommitError> {
        self.check(revisions)?;
        let mut subject = Subject::default();
        for change in &revisions.changes {
            match &change.action {
                Action::Put { value, record } => {
                    self.put(&change.key, value, *record, &mut subject);
                }
                Action::Delete => self.delete(&change.key, &mut subject),
            }
        }
        self.time = Some(revisions.time);
        if !subject.is_empty() {
            let tree = self.data.write(&mut self.pack);
            self.overhead += self.data.take_overhead();
            let trailers = message::trailers(revisions.first, revisions.last, &revisions.clients);
            let message = format!("{}\n\n{trailers}{}", subject.text(), actor::trailers(actors));
            self.data_commit = self.write_commit(tree, &[self.data_commit], revisions.time, &message);
            self.commits += 1;
            self.changes += revisions.changes.len();
        }
        Ok(())
    }

    pub(super) fn check(&self, revisions: &Revisions) -> Result<(), CommitError> {
        if self.failed {
            return Err(CommitError::Failed);
        }
        for Change { key, action } in &revisions.changes {
            // Keys in Git can always be deleted, even if they have become ephemeral.
            if matches!(action, Action::Put { .. }) {
                let committed = match self.config.keys.placement(key) {
                    Placement::Data => self.config.keys.relative(key),
                    Placement::Local => key,
                    Placement::Ephemeral => {
                        return Err(CommitError::Ephemeral { key: key.escape_ascii().to_string() });
                    }
                };
                if !path::fits(committed) {
                    return Err(CommitError::TooDeep { key: key.escape_ascii().to_string() });
                }
            }
        }
        Ok(())
    }

    pub(super) fn put(&mut self, key: &Bytes, value: &Bytes, record: Record, subject: &mut Subject) {
        let (form, blob) = form::encode(value);
        let is_data = self.config.keys.placement(key) == Placement::Data;
        // Local values are stored as they are, since no diff shows them.
        let (home, form, blob) =
            if is_data { (Location::Data, form, &*blob) } else { (Location::Local, form::Form::Raw, &**value) };
        let line = KeyRecord { key: key.clone(), record, form, home };
        load::place(&self.config.keys, &line, &mut self.path);
        let is_new = self.trie.put(line);
        let oid = pack::id(Kind::Blob, blob);
        if !is_data {
            self.local.put(&self.path, oid);
            self.local_values.insert(key.clone(), (oid, value.clone()));
            self.local_changed = true;
            return;
        }
        if self.data.find(&self.path) != Some(oid) {
            self.data.put(&self.path, oid);
            self.write_value(key, oid, blob);
        }
        self.describe(if is_new { Verb::Create } else { Verb::Update }, subject);
    }

    pub(super) fn delete(&mut self, key: &Bytes, subject: &mut Subject) {
        let Some(line) = self.trie.remove(key) else {
            return;
        };
        self.values.remove(key);
        load::place(&self.config.keys, &line, &mut self.path);
        match line.home {
            Location::Data => {
                self.describe(Verb::Delete, subject);
                self.data.remove(&self.path);
            }
            Location::Local => {
                self.local.remove(&self.path);
                self.local_values.remove(key);
                self.local_changed = true;
            }
        }
    }

    /// Adds the change of the key at `self.path` to the subject, with the path of its value.
    pub(super) fn describe(&self, verb: Verb, subject: &mut Subject) {
        let path = std::str::from_utf8(&self.path).expect("the path encoding escapes everything but ASCII");
        if self.data.is_directory(&self.path) {
            subject.add(verb, &format!("{path}/%value"));
        } else {
            subject.add(verb, path);
        }
    }

    fn write_value(&mut self, key: &Bytes, oid: Oid, blob: &[u8]) {
        let Some(before) = self.values.get_mut(key) else {
            let placed = self.pack.whole(Kind::Blob, oid, blob);
            self.values.insert(key.clone(), Value { placed, blob: blob.to_vec() });
            return;
        };
        self.scratch.clear();
        let mut placed = None;
        if !before.placed.ends_chain() {
            delta::between(&before.blob, blob, &mut self.scratch);
            // Otherwise the whole value, deflated, takes about as little.
            if self.scratch.len() < blob.len() / 2 {
                placed = self.pack.delta(oid, &self.scratch, before.placed);
            }
        }
        before.placed = placed.unwrap_or_else(|| self.pack.whole(Kind::Blob, oid, blob));
        before.blob.clear();
        before.blob.extend_from_slice(blob);
    }

    pub(super) fn write_commit(&mut self, tree: Oid, parents: &[Oid], time: SystemTime, message: &str) -> Oid {
        use std::fmt::Write;
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut content = format!("tree {tree}\n");
        for parent in parents {
            writeln!(content, "parent {parent}").expect("writing to a string does not fail");
        }
        for role in ["author", "committer"] {
            writeln!(content, "{role} {}{seconds} +0000", self.identity).expect("writing to a string does not fail");
        }
        content.push('\n');
        content.push_str(message);
        let oid = pack::id(Kind::Commit, content.as_bytes());
        self.pack.whole(Kind::Commit, oid, content.as_bytes());
        oid
    }

    /// Adds a file to the root of the metadata, and writes it unless the last metadata commit has it.
    pub(super) fn write_file(&mut self, name: &[u8], content: &[u8]) {
        let oid = pack::id(Kind::Blob, content);
        if self.root.find(Entry::File, name) != Some(oid) {
            self.pack.whole(Kind::Blob, oid, content);
            self.root.set(Entry::File, name, oid);
        }
    }
}
