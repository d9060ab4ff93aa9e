//! What is known of a commit that wrote fields: who, when, and on which branch.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use git2::{Odb, Oid};
use gitcd_repo::actor;
use gitcd_repo::changes::Finder;
use gitcd_repo::history_link::HistoryLink;
use gitcd_repo::lookup::Lookup;

use super::ancestry::KeyGraph;
use super::arrival::arrivals;
use super::flushes::Flushes;
use super::walk::FieldWriter;
use crate::flush::Flush;
use crate::line::Step;
use crate::who::Who;
use crate::{CommitInfo, History, HistoryError, Revisions};

/// A commit that wrote fields.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The commit.
    pub commit: CommitInfo,
    /// Its revisions on this branch, if known.
    pub revisions: Option<Revisions>,
    /// Who made the change.
    pub who: Who,
    /// The branch that has the commit on its own line: this branch, or the only other reference that has it in its history, or the
    /// name of the gitcd that made the commit. `None` if none of these is known.
    pub branch: Option<String>,
    /// Whether this branch made the commit.
    pub is_own: bool,
    /// Whether a shallow clone ends here, so that an earlier commit may have written the fields.
    pub is_boundary: bool,
}

/// Limit on other references in which commits are searched for.
const REFERENCES: usize = 16;

/// How a commit relates to this branch.
#[derive(Clone, Copy, Debug, Default)]
struct Relation {
    /// Whether this branch made the commit.
    is_own: bool,
    /// Whether the commit is on the first-parent line of this branch.
    is_on_line: bool,
    revisions: Option<Revisions>,
}

/// Describes the commits that wrote fields of a key.
pub(super) struct Describer<'d, 'h> {
    history: &'h History,
    odb: Odb<'h>,
    key: &'d [u8],
    flushes: Flushes<'h>,
    graph: &'d mut KeyGraph<'h>,
    lines: HashMap<usize, Rc<BranchLine>>,
}

/// The first-parent line of this branch in a flush.
struct BranchLine {
    steps: HashMap<Oid, Step>,
    /// The commit that wrote the value that the flush has, if the flush is the first one of an adopted history.
    last: Option<Oid>,
}

impl<'d, 'h> Describer<'d, 'h> {
    pub(super) fn new(
        history: &'h History,
        key: &'d [u8],
        flushes: Flushes<'h>,
        graph: &'d mut KeyGraph<'h>,
    ) -> Result<Self, HistoryError> {
        Ok(Self { history, odb: history.odb()?, key, flushes, graph, lines: HashMap::new() })
    }

    /// Describes commits, in their order.
    ///
    /// Reads the commits of the flushes with which they came, and to find the branch of a commit that is not on this branch's
    /// line, the commits that only some of the references have.
    pub(super) fn describe(mut self, writers: &[&FieldWriter]) -> Result<Vec<Origin>, HistoryError> {
        let arrived = arrivals(&self.odb, writers, &mut self.flushes, self.graph)?;
        let mut relations = Vec::new();
        for (writer, flush) in writers.iter().zip(arrived) {
            relations.push(match flush {
                Some(at) => self.relation(&writer.commit, at)?,
                None => Relation::default(),
            });
        }
        let elsewhere = writers.iter().zip(&relations).filter(|(_, relation)| !relation.is_on_line);
        let branches = self.other_branches(elsewhere.map(|(writer, _)| &*writer.commit).collect())?;
        let describe = |(writer, relation): (&&FieldWriter, Relation)| {
            let FieldWriter { commit, is_boundary, .. } = writer;
            let Relation { is_own, is_on_line, revisions } = relation;
            let own = || short(&self.history.config.data_reference).to_owned();
            let branch = if is_on_line { Some(own()) } else { branches.get(&commit.oid).cloned().flatten() };
            let (commit, who) = (CommitInfo::clone(commit), self.who(writer)?);
            Ok(Origin { commit, revisions, who, branch, is_own, is_boundary: *is_boundary })
        };
        writers.iter().zip(relations).map(describe).collect()
    }

    fn who(&self, writer: &FieldWriter) -> Result<Who, HistoryError> {
        let mut bytes = Vec::new();
        // Of a merge, the managers of both sides changed the object.
        for value in writer.values.into_iter().filter(|_| writer.commit.parents.len() < 2) {
            bytes.push(value.map(|blob| self.history.value(blob, None)).transpose()?);
        }
        let of = |at: usize| bytes.get(at).and_then(Option::as_deref);
        let key = actor::key_name(self.history.keys(), self.key);
        Ok(Who::of(&writer.commit, Some(key), [of(0), of(1)]))
    }

    /// Returns how a commit relates to this branch, given the flush with which it came.
    fn relation(&mut self, commit: &CommitInfo, at: usize) -> Result<Relation, HistoryError> {
        let older = self.flushes.get(&self.odb, at + 1)?.cloned();
        let Some(newer) = self.flushes.get(&self.odb, at)?.cloned() else { return Ok(Relation::default()) };
        if newer.metadata == commit.oid {
            let revisions = self.only_revision(older.as_ref(), &newer)?;
            return Ok(Relation { is_own: true, is_on_line: true, revisions });
        }
        if older.is_some() && newer.joins.is_empty() {
            let own = commit.revisions();
            let is_single = own.is_some_and(|own| own.first == own.last);
            let only = if is_single { None } else { self.only_revision(older.as_ref(), &newer)? };
            return Ok(Relation { is_own: true, is_on_line: true, revisions: only.or(own) });
        }
        let line = self.line(at, older.as_ref(), &newer)?;
        let step = line.steps.get(&commit.oid);
        let is_own = step.is_some_and(|step| step.is_own && (step.revisions().is_some() || commit.parents.len() > 1));
        let is_adopted = is_adopted(&newer);
        let is_on_line = is_own || is_adopted && step.is_some();
        let own = step.and_then(Step::revisions);
        let revisions = if own.is_some_and(|own| own.first == own.last) {
            own
        } else if is_adopted {
            let is_last = line.last == Some(commit.oid);
            self.last_revision(&newer)?.filter(|_| is_last).or(own)
        } else {
            // The only change may be one of this store.
            let only = self.only_revision(older.as_ref(), &newer)?;
            let is_of_another = |only: &Revisions| {
                let mut others = line.steps.values().filter(|step| step.commit.oid != commit.oid);
                others.any(|step| step.revisions().is_some_and(|own| (own.first..=own.last).contains(&only.last)))
            };
            only.filter(|only| !is_of_another(only)).or(own)
        };
        Ok(Relation { is_own, is_on_line, revisions })
    }

    fn line(&mut self, at: usize, older: Option<&Flush>, newer: &Flush) -> Result<Rc<BranchLine>, HistoryError> {
        if let Some(line) = self.lines.get(&at) {
            return Ok(Rc::clone(line));
        }
        let steps = self.history.line(&self.odb, older, Some(newer), newer.data, usize::MAX)?;
        let last = if is_adopted(newer) { self.last_change(&steps)? } else { None };
        let steps = steps.into_iter().map(|step| (step.commit.oid, step)).collect();
        let line = Rc::new(BranchLine { steps, last });
        self.lines.insert(at, Rc::clone(&line));
        Ok(line)
    }

    /// Returns the commit that made the last change of the key, as `gitcd log` prints it.
    fn last_change(&self, steps: &[Step]) -> Result<Option<Oid>, HistoryError> {
        let Some(relative) = self.history.relative(self.key) else { return Ok(None) };
        let mut finder = Finder::new(self.history.odb()?, relative);
        for step in steps {
            let here = finder.find(step.commit.tree)?;
            let before = match step.before {
                Some(before) => finder.find(CommitInfo::read(&self.odb, before)?.tree)?,
                None => None,
            };
            if here != before {
                return Ok(Some(self.history.brought(&self.odb, relative, step, here)?.oid));
            }
        }
        Ok(None)
    }

    /// Returns the revision of the change of the key between two flushes, if there is only one that may have written its fields.
    fn only_revision(&self, older: Option<&Flush>, newer: &Flush) -> Result<Option<Revisions>, HistoryError> {
        let mut lookup = Lookup::new(self.key);
        let Some(now) = crate::known(&mut lookup, &self.odb, newer)? else { return Ok(None) };
        let before = match older {
            Some(older) => crate::known(&mut lookup, &self.odb, older)?,
            None => None,
        };
        let (now, before) = (now.record, before.map(|before| before.record));
        let is_only = match before {
            Some(before) if before.create_revision == now.create_revision => now.version == before.version + 1,
            // The fields of an object that was deleted before are not those of the new one.
            _ => now.version == 1 && older.is_some(),
        };
        Ok(is_only.then_some(Revisions { first: now.mod_revision, last: now.mod_revision }))
    }

    /// Returns the revision of the last change of the key.
    fn last_revision(&self, flush: &Flush) -> Result<Option<Revisions>, HistoryError> {
        let known = crate::known(&mut Lookup::new(self.key), &self.odb, flush)?;
        Ok(known.map(|known| Revisions { first: known.record.mod_revision, last: known.record.mod_revision }))
    }

    /// Returns the names of the branches of commits that are in the history of this branch, and not on its line.
    fn other_branches(&mut self, commits: Vec<&CommitInfo>) -> Result<HashMap<Oid, Option<String>>, HistoryError> {
        let Some(first) = commits.first() else { return Ok(HashMap::new()) };
        let by_store = |commit: &CommitInfo| Some(commit.author.clone()).filter(|_| commit.revisions().is_some());
        let tips = self.tips(first.oid)?;
        let reached = if tips.is_empty() || tips.len() > REFERENCES {
            return Ok(commits.into_iter().map(|commit| (commit.oid, by_store(commit))).collect());
        } else {
            // With the head of this branch, so that a commit that was not visited is in the history of every tip.
            let heads: Vec<Oid> = tips.iter().map(|(_, tip)| *tip).chain([self.history.head]).collect();
            self.graph.reached_from(&heads)?
        };
        let name = |commit: &CommitInfo| {
            let by = reached.get(&commit.oid);
            let mut names = tips.iter().enumerate().filter(|(at, _)| by.is_none_or(|by| by.has(*at)));
            match (names.next(), names.next()) {
                (Some((_, (only, _))), None) => Some(only.clone()),
                _ => by_store(commit),
            }
        };
        Ok(commits.into_iter().map(|commit| (commit.oid, name(commit))).collect())
    }

    /// Returns the other branches with their heads. Remote-tracking branches of this branch are not other ones.
    fn tips(&self, of: Oid) -> Result<Vec<(String, Oid)>, HistoryError> {
        let failed = |error: git2::Error| HistoryError::object(of, error.message());
        let History { repository, config, .. } = self.history;
        let own = short(&config.data_reference);
        let is_own = |name: &str| {
            let tracked = name.strip_prefix("refs/remotes/").and_then(|name| name.split_once('/'));
            name == config.data_reference
                || name == config.metadata_reference
                || tracked.is_some_and(|(_, branch)| branch == own)
        };
        let mut tips: Vec<(String, Oid)> = Vec::new();
        let mut seen = HashSet::new();
        for pattern in ["refs/heads/*", "refs/remotes/*"] {
            for reference in repository.references_glob(pattern).map_err(failed)?.flatten() {
                if let (Ok(name), Some(tip)) = (reference.name(), reference.target())
                    && !is_own(name)
                    && seen.insert(name.to_owned())
                {
                    tips.push((short(name).to_owned(), tip));
                }
            }
        }
        Ok(tips)
    }
}

fn is_adopted(flush: &Flush) -> bool {
    flush.joins.iter().any(|join| matches!(join, HistoryLink::Adopted { .. }))
}

/// Returns the name of a reference as Git prints it.
fn short(reference: &str) -> &str {
    let kinds = ["refs/heads/", "refs/remotes/", "refs/"];
    kinds.iter().find_map(|kind| reference.strip_prefix(kind)).unwrap_or(reference)
}
