//! Receives a pack and checks that it is sound and complete.

use std::path::Path;
use std::process::Stdio;

use git2::{ObjectType, Oid};
use gitcd_core::program::{Running, stderr_excerpt};
use tokio::io::AsyncWriteExt;

use super::super::Inner;
use super::super::input::Input;
use super::super::problem::Problem;
use super::commands::Push;
use super::plain;
use super::quarantine::Quarantine;
use super::report::Report;

/// Why a pack is not accepted.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is damaged, too large, or has objects that Git does not allow.
    Unusable(String),
    /// The connection or the host failed: an error response instead of a report.
    Problem(Problem),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Reads the pack into the quarantine, checks it and everything reachable from the new ids, and refuses commands with missing
/// objects. Returns the objects if they were read in process and not by Git.
pub(super) async fn unpack(
    host: &Inner,
    repository: &Path,
    quarantine: &Quarantine,
    push: &Push,
    report: &mut Report,
    input: &mut Input,
) -> Result<Option<plain::Taken>, Failure> {
    let commits = wanted(push, report)
        .into_iter()
        .map(|Wanted { at, id, .. }| plain::Wanted { reference: push.commands[at].reference.clone(), id });
    let taken = plain::unpack(host, repository, quarantine, commits.collect(), input).await?;
    if taken.is_some() {
        return Ok(taken);
    }
    index(host, repository, quarantine, input).await?;
    for (at, reason) in wrong_kinds(repository, quarantine, wanted(push, report)).await? {
        report.refuse(at, reason);
    }
    let all = wanted(push, report);
    let ids: Vec<_> = all.iter().map(|wanted| wanted.id).collect();
    if ids.is_empty() || is_connected(host, repository, quarantine, &ids).await? {
        return Ok(None);
    }
    if all.len() > MAX_SUSPECTS {
        report.refuse_all(MISSING);
        return Ok(None);
    }
    // Check one by one, so that only commands with missing objects are refused.
    for Wanted { at, id, .. } in all {
        if !report.is_refused(at) && !is_connected(host, repository, quarantine, &[id]).await? {
            report.refuse(at, MISSING);
        }
    }
    Ok(None)
}

/// Up to this many references are checked one by one for missing objects; beyond it, all are refused.
const MAX_SUSPECTS: usize = 16;
/// Git's own message.
const MISSING: &str = "missing necessary objects";

/// The requested target of a command's reference.
struct Wanted {
    at: usize,
    is_branch: bool,
    id: Oid,
}

fn wanted(push: &Push, report: &Report) -> Vec<Wanted> {
    let commands = push.commands.iter().enumerate().filter(|(at, _)| !report.is_refused(*at));
    let wanted = commands.filter_map(|(at, command)| {
        let is_branch = command.reference.starts_with("refs/heads/");
        Some(Wanted { at, is_branch, id: command.new? })
    });
    wanted.collect()
}

/// Runs `git index-pack`, which checks every object as `git fsck` does and completes thin packs.
async fn index(host: &Inner, repository: &Path, quarantine: &Quarantine, input: &mut Input) -> Result<(), Failure> {
    let max_bytes = format!("--max-input-size={}", host.limits.max_pack_bytes);
    let mut command = host.git.command(&["index-pack", "--stdin", "--fix-thin", "--strict", &max_bytes]);
    quarantine.apply(repository, &mut command);
    let failed = || Problem::failed("cannot run git index-pack");
    command.stdin(Stdio::piped()).stdout(quarantine.output().map_err(failed())?);
    let mut running = Running::start(&mut command).map_err(failed())?;
    // It holds a copy of the quarantine's lock.
    drop(command);
    let child = running.child();
    let (Some(mut stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
        return Err(Problem::Failed.into());
    };
    let fed = async {
        while let Some(chunk) = input.chunk().await? {
            if stdin.write_all(&chunk).await.is_err() {
                // The process has exited; its output says why.
                break;
            }
        }
        drop(stdin);
        Ok(())
    };
    let told = stderr_excerpt(stderr);
    // At the end of its input the process exits, and its output ends.
    let (fed, said) = tokio::join!(fed, told);
    match fed {
        Ok(()) => {}
        Err(Problem::TooLarge) => {
            running.end().await;
            return Err(Failure::Unusable("the pack is larger than this host accepts".to_owned()));
        }
        Err(problem) => {
            running.end().await;
            return Err(problem.into());
        }
    }
    let status = running.child().wait().await.map_err(failed())?;
    if status.success() {
        return Ok(());
    }
    tracing::info!(repository = %repository.display(), said, "rejected a pack");
    Err(Failure::Unusable(unusable(&said, repository)))
}

/// Returns Git's error for the client, without paths of this machine.
fn unusable(said: &str, repository: &Path) -> String {
    let said = said.lines().rev().find_map(|line| line.strip_prefix("fatal: ")).unwrap_or("the pack cannot be used");
    let path = repository.to_string_lossy();
    if said.contains(&*path) { "the pack cannot be used".to_owned() } else { said.to_owned() }
}

/// Returns the commands whose target does not exist, or is not a commit though a branch needs one.
async fn wrong_kinds(
    repository: &Path,
    quarantine: &Quarantine,
    wanted: Vec<Wanted>,
) -> Result<Vec<(usize, &'static str)>, Problem> {
    let (repository, folder) = (repository.to_owned(), quarantine.folder().to_owned());
    let checked = tokio::task::spawn_blocking(move || {
        let opened = git2::Repository::open_bare(&repository)?;
        let objects = opened.odb()?;
        objects.add_disk_alternate(&folder.to_string_lossy())?;
        let reason = |wanted: &Wanted| match objects.read_header(wanted.id) {
            Ok((_, kind)) if wanted.is_branch && kind != ObjectType::Commit => Some("a branch must be a commit"),
            Ok(_) => None,
            Err(_) => Some(MISSING),
        };
        Ok(wanted.iter().filter_map(|wanted| Some((wanted.at, reason(wanted)?))).collect())
    });
    checked.await.map_err(|_| Problem::Failed)?.map_err(|error: git2::Error| {
        tracing::error!(%error, "cannot look into a quarantine");
        Problem::Failed
    })
}

/// Runs `git rev-list`, which walks from the new ids to the existing history and fails on a missing object.
async fn is_connected(
    host: &Inner,
    repository: &Path,
    quarantine: &Quarantine,
    wanted: &[Oid],
) -> Result<bool, Problem> {
    let mut command = host.git.command(&["rev-list", "--objects", "--stdin", "--not", "--all", "--quiet"]);
    quarantine.apply(repository, &mut command);
    let failed = || Problem::failed("cannot run git rev-list");
    let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::null())).map_err(failed())?;
    let child = running.child();
    let (Some(mut stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
        return Err(Problem::Failed);
    };
    let ids: Vec<_> = wanted.iter().map(ToString::to_string).collect();
    let ids = ids.join("\n") + "\n";
    let fed = async {
        // If the process exits early, its output says why.
        let _written = stdin.write_all(ids.as_bytes()).await;
        drop(stdin);
    };
    let ((), said) = tokio::join!(fed, stderr_excerpt(stderr));
    let status = running.child().wait().await.map_err(failed())?;
    if !status.success() {
        tracing::info!(repository = %repository.display(), said, "a push references missing objects");
    }
    Ok(status.success())
}
