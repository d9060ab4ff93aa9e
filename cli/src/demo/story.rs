//! What the branches did, from their commits: which heaven made which change, and when it reached the desk.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::DemoError;
use super::watch::Move;
use crate::heavens::HeavenRecord;

/// The commits of one branch with the same verb and kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chapter {
    /// The heaven that made them.
    pub heaven: String,
    /// Verb and kind, such as `create pods`.
    pub what: String,
    /// The number of commits.
    pub commits: usize,
    /// The id of the first one.
    pub first: String,
    /// When the first was on its branch, in seconds since the start.
    pub from_seconds: f64,
    /// When all of them were.
    pub to_seconds: f64,
    /// When all of them were on the desk's branch.
    pub at_desk_seconds: Option<f64>,
}

/// The chapters, ordered by start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Story {
    /// The groups of commits.
    pub chapters: Vec<Chapter>,
    /// The number of merge commits.
    pub merges: usize,
}

struct Commit {
    id: String,
    parents: usize,
    committer: String,
    subject: String,
}

impl Story {
    /// Builds the story from the moves after `since`; times count from `zero`.
    pub(super) fn of(
        heavens: &[HeavenRecord],
        desk: &str,
        moves: &[Move],
        since: Instant,
        zero: Instant,
    ) -> Result<Self, DemoError> {
        let mut story = Self::default();
        let mut first_seen: HashMap<String, Duration> = HashMap::new();
        let mut at_desk: HashMap<String, Duration> = HashMap::new();
        let mut own: Vec<(usize, Commit)> = Vec::new();
        for moved in moves.iter().filter(|moved| moved.at >= since) {
            let heaven = &heavens[moved.heaven];
            let after = moved.at.saturating_duration_since(zero);
            for commit in commits(&heaven.repository, moved.from.as_deref(), &moved.to)? {
                if heaven.name == desk {
                    at_desk.entry(commit.id.clone()).or_insert(after);
                }
                if first_seen.contains_key(&commit.id) {
                    continue;
                }
                first_seen.insert(commit.id.clone(), after);
                // Merge commits are not attributed: each heaven that sees both sides makes the same one.
                if commit.parents > 1 {
                    story.merges += 1;
                } else if let Some(maker) = heavens.iter().position(|heaven| heaven.name == commit.committer) {
                    own.push((maker, commit));
                }
            }
        }
        for (maker, commit) in own {
            let heaven = &heavens[maker].name;
            let what = summary(&commit.subject);
            let (seen, desk) =
                (first_seen[&commit.id].as_secs_f64(), at_desk.get(&commit.id).map(Duration::as_secs_f64));
            let chapters = &mut story.chapters;
            match chapters.iter_mut().find(|chapter| chapter.heaven == *heaven && chapter.what == what) {
                Some(chapter) => {
                    chapter.commits += 1;
                    chapter.to_seconds = chapter.to_seconds.max(seen);
                    chapter.at_desk_seconds = chapter.at_desk_seconds.zip(desk).map(|(one, other)| one.max(other));
                }
                None => chapters.push(Chapter {
                    heaven: heaven.clone(),
                    what,
                    commits: 1,
                    first: commit.id.chars().take(10).collect(),
                    from_seconds: seen,
                    to_seconds: seen,
                    at_desk_seconds: desk,
                }),
            }
        }
        Ok(story)
    }

    /// The heaven that did this first, such as `create pods`.
    #[must_use]
    pub fn maker(&self, what: &str) -> Option<&str> {
        self.chapters.iter().find(|chapter| chapter.what == what).map(|chapter| chapter.heaven.as_str())
    }
}

/// Returns the new commits of a move, oldest first.
fn commits(repository: &Path, from: Option<&str>, to: &str) -> Result<Vec<Commit>, DemoError> {
    // The first observation only finds where the branch is.
    let Some(from) = from else { return Ok(Vec::new()) };
    let failed = |reason: String| DemoError::Git { repository: repository.into(), reason };
    let range = format!("{from}..{to}");
    let output = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(["log", "--reverse", "--topo-order", "--format=%H%x09%p%x09%cn%x09%s", &range])
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let commit = |line: &str| {
        let mut fields = line.splitn(4, '\t').map(ToOwned::to_owned);
        let (id, parents) = (fields.next()?, fields.next()?.split_whitespace().count());
        Some(Commit { id, parents, committer: fields.next()?, subject: fields.next()? })
    };
    Ok(text.lines().filter_map(commit).collect())
}

/// Reduces a subject to verb and kind: `create pods/default/a` and `create 3 pods` are both `create pods`.
fn summary(subject: &str) -> String {
    let mut words = subject.split(' ');
    let verb = words.next().unwrap_or_default();
    let kind = words.find(|word| !word.bytes().all(|byte| byte.is_ascii_digit())).unwrap_or_default();
    format!("{verb} {}", kind.split('/').next().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_summed_up() {
        for (subject, expected) in [
            ("create pods/default/demo-1", "create pods"),
            ("create 3 pods", "create pods"),
            ("update deployments/default/demo", "update deployments"),
            ("change 4 keys", "change keys"),
            ("begin", "begin"),
        ] {
            assert_eq!(summary(subject), expected);
        }
    }
}
