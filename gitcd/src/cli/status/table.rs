//! The output of `gitcd status`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use gitcd_server::status::{Branch, Remote, Status};
use gitcd_sync::status::{Condition, ConflictStatus, Source};

use super::super::age;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default();
const STRONG: Style = Style::new().bold();
const PLAIN: Style = Style::new();

/// Text and its style.
struct Cell(String, Style);

/// Prints the branches of a server; `named` adds its URL, if there are other servers.
pub(super) fn print(out: &mut impl Write, url: &str, status: &Status, named: bool) -> io::Result<()> {
    if named {
        writeln!(out, "{url}")?;
    }
    let head = ["BRANCH", "REVISION", "HEAD", "COMMIT LAG"].map(|name| Cell(name.into(), STRONG));
    let mut branches = vec![head];
    branches.extend(status.branches.iter().map(line));
    let widths = widths(&branches);
    row(out, "", &branches[0], &widths)?;
    for (branch, cells) in status.branches.iter().zip(&branches[1..]) {
        row(out, "", cells, &widths)?;
        let remotes: Vec<_> = branch.remotes.iter().map(|known| remote(known, status.time)).collect();
        let widths = self::widths(&remotes);
        for (known, cells) in branch.remotes.iter().zip(&remotes) {
            row(out, "  ", cells, &widths)?;
            if let Some(fetching) = &known.fetching {
                let first = if known.known.seen.is_none() { "first fetch" } else { "fetching" };
                writeln!(out, "    {WARN}{first}:{WARN:#} {fetching}")?;
            }
            if let Some(error) = &known.known.error {
                writeln!(out, "    {BAD}{}{BAD:#}", one_line(error))?;
            }
            conflicts(out, &known.known.latest_conflicts, status.time)?;
            rejected(out, &known.known.rejected, &known.known.rejected_from, status.time)?;
        }
        if let Some(lease) = &branch.lease {
            let style = if branch.role == "writer" { GOOD } else { BAD };
            let left = format!("{:.1}s of {}s left", lease.remaining_seconds, lease.duration_seconds);
            writeln!(
                out,
                "  {style}{}{style:#} in epoch {}, lease on {}: {left}",
                one_line(&branch.role),
                lease.epoch,
                one_line(&lease.remote)
            )?;
            if let Some(error) = &lease.error {
                writeln!(out, "    {BAD}{}{BAD:#}", one_line(error))?;
            }
        }
        let errors = [("writes refused", &branch.writes_refused), ("cannot be merged", &branch.error)];
        for (what, error) in errors {
            if let Some(error) = error {
                writeln!(out, "  {BAD}{what}:{BAD:#} {}", one_line(error))?;
            }
        }
        if branch.conflicts > 0 {
            let word =
                |count: u64, word: &str| if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") };
            let (merges, conflicts) = (word(branch.merges, "merge"), word(branch.conflicts, "conflict"));
            writeln!(out, "  external commits: {merges}, {WARN}{conflicts}{WARN:#}")?;
        }
        for (name, task) in &branch.tasks {
            let (style, state) = if task.down { (BAD, "is down") } else { (WARN, "was restarted") };
            let (restarts, error) = (task.restarts, one_line(&task.error));
            writeln!(out, "  {style}task {name} {state}{style:#} after a panic ({restarts} restarts): {error}")?;
        }
        conflicts(out, &branch.latest_conflicts, status.time)?;
        rejected(out, &branch.rejected, &branch.rejected_from, status.time)?;
    }
    Ok(())
}

fn line(branch: &Branch) -> [Cell; 4] {
    let lag = match branch.commit_lag_revisions {
        0 => Cell("none".into(), PLAIN),
        1 => Cell(format!("1 revision, {:.1}s", branch.commit_lag_seconds), PLAIN),
        many => Cell(format!("{many} revisions, {:.1}s", branch.commit_lag_seconds), PLAIN),
    };
    let head = branch.head.chars().take(10).collect();
    [Cell(branch.name.clone(), STRONG), Cell(branch.revision.to_string(), PLAIN), Cell(head, PLAIN), lag]
}

fn remote(remote: &Remote, time: u64) -> [Cell; 6] {
    let known = &remote.known;
    let condition = match known.condition {
        Condition::Synced => GOOD,
        Condition::Unknown | Condition::Raced => WARN,
        _ => BAD,
    };
    let more = if remote.lag_more { "more than " } else { "" };
    let lag = match (remote.lag_commits, remote.lag_seconds.map(age::words)) {
        (None, _) => Cell("lag unknown".into(), PLAIN),
        (Some(0), _) if !remote.lag_more => Cell("nothing to merge".into(), PLAIN),
        (Some(commits), seconds) => {
            let word = if commits == 1 { "commit" } else { "commits" };
            let since = seconds.map(|seconds| format!(", {seconds}")).unwrap_or_default();
            Cell(format!("{more}{commits} {word} behind{since}"), WARN)
        }
    };
    let merged = match known.merged_at {
        Some(at) => format!("merged {} ago", age::words(time.saturating_sub(at))),
        None => "never merged".into(),
    };
    let counted = |count: usize, what: &str| match count {
        0 => Cell(format!("no {what}s"), PLAIN),
        1 => Cell(format!("1 {what}"), WARN),
        many => Cell(format!("{many} {what}s"), WARN),
    };
    [
        Cell(remote.name.clone(), PLAIN),
        Cell(format!("{:?}", known.condition), condition),
        lag,
        Cell(merged, PLAIN),
        counted(known.conflicts as usize, "conflict"),
        match known.rejected.len() {
            0 => Cell("nothing rejected".into(), PLAIN),
            many => Cell(format!("{many} rejected"), WARN),
        },
    ]
}

fn conflicts(out: &mut impl Write, conflicts: &[ConflictStatus], time: u64) -> io::Result<()> {
    conflicts.iter().try_for_each(|conflict| {
        let commit: String = conflict.commit.chars().take(10).collect();
        let since = age::words(time.saturating_sub(conflict.time));
        let line = one_line(&format!("{conflict} (commit {commit}, {since} ago)"));
        writeln!(out, "    {WARN}conflict{WARN:#} {line}")
    })
}

fn rejected(
    out: &mut impl Write,
    files: &BTreeMap<String, String>,
    from: &BTreeMap<String, Source>,
    time: u64,
) -> io::Result<()> {
    files.iter().try_for_each(|(path, reason)| {
        let since = from.get(path).map(|source| {
            let commit: String = source.commit.chars().take(10).collect();
            format!(" (commit {commit}, {} ago)", age::words(time.saturating_sub(source.time)))
        });
        let since = since.unwrap_or_default();
        writeln!(out, "    {WARN}rejected{WARN:#} {}: {}{}", one_line(path), one_line(reason), one_line(&since))
    })
}

/// Replaces control characters in external text, which must not move the cursor.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn widths<const N: usize>(rows: &[[Cell; N]]) -> [usize; N] {
    std::array::from_fn(|column| rows.iter().map(|row| row[column].0.chars().count()).max().unwrap_or_default())
}

fn row<const N: usize>(out: &mut impl Write, indent: &str, cells: &[Cell; N], widths: &[usize; N]) -> io::Result<()> {
    write!(out, "{indent}")?;
    for (column, (Cell(text, style), width)) in cells.iter().zip(widths).enumerate() {
        let text = one_line(text);
        // No trailing blanks.
        let blanks = if column + 1 < N { width + 2 - text.chars().count() } else { 0 };
        write!(out, "{style}{text}{style:#}{:blanks$}", "")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gitcd_server::status::Fetching;
    use gitcd_sync::status::RemoteStatus;

    #[test]
    fn remotes_are_below_their_branch_in_columns() {
        let status = |json: &str| serde_json::from_str::<Status>(json).unwrap();
        let mut status = status(
            r#"{"gitcd":"1","time":1000,"branches":[{"name":"default","reference":"refs/heads/main","role":"writer",
            "revision":42,"committed_revision":40,"compact_revision":1,"head":"0123456789abcdef","commit_lag_revisions":2,
            "commit_lag_seconds":0.25,"keys":7,"merges":0,"conflicts":0,"rejected":{"x/y":"not\nJSON"},
            "rejected_from":{"x/y":{"reference":"refs/heads/main","commit":"fedcba9876543210","time":880}},"remotes":[]}]}"#,
        );
        let known = RemoteStatus { condition: Condition::Synced, merged_at: Some(940), ..RemoteStatus::default() };
        let synced = Remote {
            name: "origin".into(),
            reference: "refs/heads/main".into(),
            lag_commits: Some(0),
            lag_more: false,
            lag_seconds: Some(0),
            fetching: None,
            known,
        };
        let gone = RemoteStatus {
            condition: Condition::Unreachable,
            error: Some("no route".into()),
            ..RemoteStatus::default()
        };
        let gone = Remote {
            name: "desk".into(),
            lag_commits: Some(3),
            lag_seconds: Some(7300),
            fetching: Some(Fetching { seconds: 2.0, bytes: 6 << 20, ..Fetching::default() }),
            known: gone,
            ..synced.clone()
        };
        status.branches[0].remotes = vec![synced, gone];
        status.branches[0].role = "suspended".into();
        status.branches[0].lease = Some(gitcd_server::status::LeaseStatus {
            remote: "origin".into(),
            reference: "refs/gitcd/lease/main".into(),
            epoch: 3,
            duration_seconds: 15.0,
            remaining_seconds: 0.0,
            error: Some("no answer".into()),
        });
        let mut out = anstream::StripStream::new(Vec::new());
        print(&mut out, "http://a", &status, false).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let expected = "\
BRANCH   REVISION  HEAD        COMMIT LAG
default  42        0123456789  2 revisions, 0.2s
  origin  Synced       nothing to merge      merged 1m ago  no conflicts  nothing rejected
  desk    Unreachable  3 commits behind, 2h  never merged   no conflicts  nothing rejected
    first fetch: 6.0 MiB, 3.0 MiB/s
    no route
  suspended in epoch 3, lease on origin: 0.0s of 15s left
    no answer
    rejected x/y: not JSON (commit fedcba9876, 2m ago)
";
        assert_eq!(text, expected);
    }
}
