//! Receives a pack and checks that it is sound and complete.

use std::path::Path;
use std::process::Stdio;

use git2::{ObjectType, Oid};
use gitcd_core::program::{Running, stderr_excerpt};
use tokio::io::AsyncWriteExt;

use super::super::Inner;
use super::super::input::Input;
use super::super::problem::{Problem, blocking};
use super::super::quota::{self, Quota};
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
    let memory = quota::of_pack(input.peek(quota::PACK_HEADER_BYTES).await?, host.limits.push_memory_bytes);
    let Some(_room) = host.budget.take(memory, host.limits.idle).await? else {
        return Err(Failure::Unusable("the pack has more objects than this host has memory for".to_owned()));
    };
    let bytes = index(host, repository, quarantine, input, memory).await?;
    let walk = Walk { host, repository, quarantine, memory, bytes };
    for (at, reason) in wrong_kinds(repository, quarantine, wanted(push, report)).await? {
        report.refuse(at, reason);
    }
    let all = wanted(push, report);
    let ids: Vec<_> = all.iter().map(|wanted| wanted.id).collect();
    if ids.is_empty() || walk.is_connected(&ids).await? {
        return Ok(None);
    }
    if all.len() > MAX_SUSPECTS {
        report.refuse_all(MISSING);
        return Ok(None);
    }
    // Check one by one, so that only commands with missing objects are refused.
    for Wanted { at, id, .. } in all {
        if !report.is_refused(at) && !walk.is_connected(&[id]).await? {
            report.refuse(at, MISSING);
        }
    }
    Ok(None)
}

/// Up to this many references are checked one by one for missing objects; beyond it, all are refused.
const MAX_SUSPECTS: usize = 16;
/// A walk gets at least the time for a pack of this size.
const WALK_BYTES: u64 = 256 << 20;
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

/// How `git index-pack` came to its end.
enum End {
    /// It exited, after it had printed this.
    Exited(String),
    /// The rest of the pack does not arrive.
    Cut(Problem),
    /// It takes too long.
    Late,
}

/// Runs `git index-pack`, which checks every object as `git fsck` does and completes thin packs. Returns the size of the pack.
async fn index(
    host: &Inner,
    repository: &Path,
    quarantine: &Quarantine,
    input: &mut Input,
    memory: u64,
) -> Result<u64, Failure> {
    let max_bytes = format!("--max-input-size={}", host.limits.max_pack_bytes);
    let arguments = ["index-pack", "--stdin", "--fix-thin", "--strict", &max_bytes];
    let mut command = host.git.command(&[&quota::UNPACK_SETTINGS[..], &arguments].concat());
    quarantine.apply(repository, &mut command);
    let failed = || Problem::failed("cannot run git index-pack");
    command.stdin(Stdio::piped()).stdout(quarantine.output().map_err(failed())?);
    let mut running = Running::start(&mut command).map_err(failed())?;
    // It holds a copy of the quarantine's lock.
    drop(command);
    let mut quota = Quota::of_push(&mut running, memory, (host.limits.push_cpu, 0)).map_err(failed())?;
    let child = running.child();
    let (Some(mut stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
        return Err(Problem::Failed.into());
    };
    let mut bytes = 0;
    let fed = async {
        while let Some(chunk) = input.chunk().await? {
            bytes += chunk.len() as u64;
            quota.received(bytes).map_err(failed())?;
            match tokio::time::timeout(quota.patience(), stdin.write_all(&chunk)).await {
                Ok(Ok(())) => {}
                // The process has exited; its output says why.
                Ok(Err(_)) => break,
                Err(_) => return Ok(()),
            }
        }
        drop(stdin);
        // At the end of its input the process exits, and its output ends.
        tokio::time::sleep(quota.patience()).await;
        Ok(())
    };
    let end = tokio::select! {
        said = stderr_excerpt(stderr) => End::Exited(said),
        fed = fed => fed.map_or_else(End::Cut, |()| End::Late),
    };
    let said = match end {
        End::Exited(said) => said,
        End::Cut(problem) => {
            running.end().await;
            return Err(match problem {
                Problem::TooLarge => Failure::Unusable("the pack is larger than this host accepts".to_owned()),
                problem => problem.into(),
            });
        }
        End::Late => {
            running.end().await;
            return Err(Failure::Unusable(quota::LATE.to_owned()));
        }
    };
    let status = running.child().wait().await.map_err(failed())?;
    if status.success() {
        // Read to its end, so that the client can use the connection again.
        input.drain(u64::MAX).await;
        return Ok(bytes);
    }
    tracing::info!(repository = %repository.display(), said, "rejected a pack");
    let reason = quota::exhausted(status, &said).map_or_else(|| unusable(&said, repository), ToOwned::to_owned);
    Err(Failure::Unusable(reason))
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
    let checked = blocking("check the targets of references", move || {
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
    checked.await?.map_err(|error: git2::Error| {
        tracing::error!(%error, "cannot look into a quarantine");
        Problem::Failed
    })
}

/// Walks of `git rev-list` for a push.
struct Walk<'w> {
    host: &'w Inner,
    repository: &'w Path,
    quarantine: &'w Quarantine,
    memory: u64,
    /// Size of the pack.
    bytes: u64,
}

impl Walk<'_> {
    /// Runs `git rev-list`, which walks from the new ids to the existing history and fails on a missing object.
    async fn is_connected(&self, wanted: &[Oid]) -> Result<bool, Failure> {
        let mut command = self.host.git.command(&["rev-list", "--objects", "--stdin", "--not", "--all", "--quiet"]);
        self.quarantine.apply(self.repository, &mut command);
        let failed = || Problem::failed("cannot run git rev-list");
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::null())).map_err(failed())?;
        // It also reads the repository, so it gets the time for a large push.
        let time = (self.host.limits.push_cpu, self.bytes.max(WALK_BYTES));
        let quota = Quota::of_push(&mut running, self.memory, time).map_err(failed())?;
        let child = running.child();
        let (Some(mut stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
            return Err(Problem::Failed.into());
        };
        let ids: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let ids = ids.join("\n") + "\n";
        let fed = async {
            // If the process exits early, its output says why.
            let _written = stdin.write_all(ids.as_bytes()).await;
            drop(stdin);
        };
        let walked = tokio::time::timeout(quota.patience(), async { tokio::join!(fed, stderr_excerpt(stderr)) });
        let Ok(((), said)) = walked.await else {
            running.end().await;
            return Err(Failure::Unusable(quota::LATE.to_owned()));
        };
        let status = running.child().wait().await.map_err(failed())?;
        if let Some(reason) = quota::exhausted(status, &said) {
            return Err(Failure::Unusable(reason.to_owned()));
        }
        if !status.success() {
            tracing::info!(repository = %self.repository.display(), said, "a push references missing objects");
        }
        Ok(status.success())
    }
}
