//! With which flush a commit came to this branch.

use std::collections::HashMap;

use git2::{Odb, Oid};

use super::ancestry::KeyGraph;
use super::flushes::Flushes;
use super::walk::FieldWriter;
use crate::HistoryError;
use crate::flush::Flush;

/// How much the clock of a person or another gitcd may be ahead of ours, in seconds.
const SKEW: i64 = 24 * 60 * 60;

/// Returns for each commit the index of the oldest flush that has it; `None` if it is not found.
///
/// The walk knows a flush that has the commit, but only on this branch's own line it is the oldest one: a merge leads to commits
/// that came with earlier merges. So this reads the commits that each flush added, from there back to the time of the commit.
pub(super) fn arrivals(
    odb: &Odb<'_>,
    writers: &[&FieldWriter],
    flushes: &mut Flushes<'_>,
    graph: &mut KeyGraph<'_>,
) -> Result<Vec<Option<usize>>, HistoryError> {
    let mut found = vec![None; writers.len()];
    let mut pending: HashMap<Oid, (usize, i64)> = HashMap::new();
    let mut at = usize::MAX;
    for (number, writer) in writers.iter().enumerate() {
        let Some(flush) = writer.flush else { continue };
        let is_last = flushes.get(odb, flush + 1)?.is_none();
        let Some(newer) = flushes.get(odb, flush)? else { continue };
        if is_last || newer.joins.is_empty() || newer.metadata == writer.commit.oid {
            found[number] = Some(flush);
        } else {
            // Whatever its clock said, the commit existed when this flush was written.
            pending.insert(writer.commit.oid, (number, writer.commit.time.min(newer.time)));
            at = at.min(flush);
        }
    }
    while let Some(first) = pending.values().map(|(_, time)| *time).min() {
        let Some(newer) = flushes.get(odb, at)?.cloned().filter(|newer| newer.time.saturating_add(SKEW) >= first)
        else {
            break;
        };
        let Some(older) = flushes.get(odb, at + 1)?.cloned() else {
            pending.drain().for_each(|(_, (number, _))| found[number] = Some(at));
            break;
        };
        if may_have(&newer, &older, pending.values().map(|(_, time)| *time)) {
            for commit in graph.only_in(newer.data, older.data)? {
                if let Some((number, _)) = pending.remove(&commit) {
                    found[number] = Some(at);
                }
            }
        }
        at += 1;
    }
    Ok(found)
}

/// Returns whether a flush may have added a commit of one of these times. Without a merge, all of its commits are of this store,
/// made since the previous flush.
fn may_have(newer: &Flush, older: &Flush, times: impl Iterator<Item = i64>) -> bool {
    let span = older.time.saturating_sub(SKEW)..=newer.time.saturating_add(SKEW);
    newer.data != older.data && (!newer.joins.is_empty() || times.into_iter().any(|time| span.contains(&time)))
}
