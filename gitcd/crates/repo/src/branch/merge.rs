//! Commits of merges, with two parents or as a fast-forward.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use git2::Oid;
use gitcd_core::scope::Scope;

use super::super::graph::{Graph, GraphError};
use super::super::history_link::HistoryLink;
use super::super::key_record::{KeyRecord, Location};
use super::super::load;
use super::super::message::{self, Subject, Verb};
use super::repository::open_repository;
use super::{Action, Branch, CommitError, Record, Revisions};
use gitcd_merge::form;

/// A merge to be committed.
#[derive(Debug, Clone)]
pub struct Merging {
    /// The revisions that the merge made here.
    pub revisions: Revisions,
    /// The commit that was merged.
    pub theirs: Oid,
    /// Blobs of theirs that are stored unchanged, by key.
    pub blobs: HashMap<Bytes, Oid>,
    /// Whether to fast-forward if their commit follows ours and has the same tree.
    pub fast_forward: bool,
    /// The merge commit's message below its subject.
    pub notes: String,
}

/// How a merge was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The branch was fast-forwarded to their commit.
    FastForward,
    /// A merge commit was made.
    Merged,
    /// Their commit is in our history already; changes became an ordinary commit.
    Contained,
}

impl Branch {
    /// Commits a merge. A merge commit depends only on its parents: these are sorted, and author and time come from them. So two
    /// branches that merge each other make the same commit.
    ///
    /// Takes what [`Branch::commit`] takes, and a walk over the commits that only one side has.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was added.
    pub fn merge(&mut self, merging: &Merging) -> Result<Joined, CommitError> {
        let Merging { revisions, theirs, blobs, fast_forward, notes } = merging;
        self.check(revisions)?;
        let (ours, visible) = (self.data_commit, self.head.data);
        // Reopen the repository: packs come and go with every exchange, and an open one keeps packs that are gone.
        if let Ok(Some(repository)) = open_repository(&self.config.repository) {
            self.repository = repository;
        }
        let mut graph = Graph::default();
        let unreadable = |error: GraphError| CommitError::Theirs { said: error.to_string() };
        let their_commit = graph.commit(&self.repository, *theirs).map_err(unreadable)?;
        // Commits in the open pack follow the last visible one, and no other branch can have them. Edges of earlier merges that
        // left out what is merged now do not count.
        let scope = Scope::parse::<Oid>(notes.as_bytes()).map(|(_, scope)| scope);
        let skip = |left_out: &Scope| scope.as_ref() != Some(left_out);
        // Where a cut hides the answer, an additional merge commit or one instead of a fast-forward is correct, too.
        let or_no = |answer: Result<bool, GraphError>| match answer {
            Err(error) if error.is_cut() => Ok(false),
            answer => answer.map_err(unreadable),
        };
        let meeting = graph.meet(&self.repository, *theirs, visible, skip);
        let is_joined = or_no(meeting.map(|meeting| meeting.bases == [*theirs]))?;
        if is_joined {
            self.commit(revisions)?;
            return Ok(Joined::Contained);
        }
        let follows = ours == visible && or_no(graph.is_ancestor(&self.repository, ours, *theirs))?;
        let mut subject = Subject::default();
        for change in &revisions.changes {
            match &change.action {
                Action::Put { value, record } => match blobs.get(&change.key) {
                    Some(blob) => self.put_blob(&change.key, value, *blob, *record, &mut subject),
                    None => self.put(&change.key, value, *record, &mut subject),
                },
                Action::Delete => self.delete(&change.key, &mut subject),
            }
        }
        let our_time = match self.time.filter(|_| ours != visible) {
            Some(time) => time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64),
            None => graph.commit(&self.repository, ours).map_err(unreadable)?.time,
        };
        self.time = Some(revisions.time);
        let tree = self.data.write(&mut self.pack);
        self.overhead += self.data.take_overhead();
        if *fast_forward && follows && tree == their_commit.tree {
            self.data_commit = *theirs;
            self.joins.push(HistoryLink::FastForward { ours, theirs: *theirs });
            return Ok(Joined::FastForward);
        }
        let mut parents = [ours, *theirs];
        parents.sort();
        let (time, later) = (our_time, ours).max((their_commit.time, *theirs));
        let short = parents.map(|parent| parent.to_string()[..10].to_owned());
        let text = format!("merge {} and {}\n\n{notes}", short[0], short[1]);
        let text = text.trim_end_matches('\n').to_owned() + "\n";
        let identity = self.identity_of(later);
        let own = std::mem::replace(&mut self.identity, identity);
        let at = UNIX_EPOCH + Duration::from_secs(time.max(0) as u64);
        self.data_commit = self.write_commit(tree, &parents, at, &text);
        self.identity = own;
        self.commits += 1;
        self.changes += revisions.changes.len();
        self.joins.push(HistoryLink::Merged { ours, theirs: *theirs });
        Ok(Joined::Merged)
    }

    /// Puts a blob that is in the repository, unchanged.
    fn put_blob(&mut self, key: &Bytes, value: &Bytes, blob: Oid, record: Record, subject: &mut Subject) {
        let form = self.repository.find_blob(blob).ok().map(|found| form::guess(found.content()));
        let Some(form) = form else { return self.put(key, value, record, subject) };
        let line = KeyRecord { key: key.clone(), record, form, home: Location::Data };
        load::place(&self.config.keys, &line, &mut self.path);
        let is_new = self.trie.put(line);
        self.values.remove(key);
        self.data.put(&self.path, blob);
        self.describe(if is_new { Verb::Create } else { Verb::Update }, subject);
    }

    /// Returns the committer of a commit, as Git formats it.
    fn identity_of(&self, commit: Oid) -> String {
        let Ok(commit) = self.repository.find_commit(commit) else { return self.identity.clone() };
        let committer = commit.committer();
        let text = |bytes: &[u8]| message::identity(&String::from_utf8_lossy(bytes));
        format!("{} <{}> ", text(committer.name_bytes()), text(committer.email_bytes()))
    }
}
