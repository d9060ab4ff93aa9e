//! Few packs: every push brings one, and each makes all that is read later a little slower.
//!
//! When there are too many, `git repack --geometric` joins the small ones, so that each is at least twice as large as all
//! smaller ones together: over time, every object is written again a logarithmic number of times, and nothing is thrown away.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Inner;
use crate::maintenance::sweep;
use crate::program::{Running, complaint};

/// Fewer are never worth it, whatever is configured.
const FEW: usize = 10;
/// `gc.autoPackLimit`, unless the repository says otherwise: Git's own default.
const PACK_LIMIT: i64 = 50;
/// A repack of a repository of any size has ended by then, or hangs.
const LIMIT: Duration = Duration::from_hours(1);
/// Others come first.
const NICE: i32 = 10;

/// After a failure a repository is left alone for so long.
const REST: Duration = Duration::from_mins(10);

/// The repositories that are being repacked, and those that could not be, until when they are left alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Upkeep(Arc<Mutex<HashMap<PathBuf, Option<Instant>>>>, watch::Sender<usize>);

/// One of them, until it is dropped.
struct Turn<'u>(&'u Upkeep, PathBuf);

impl Upkeep {
    fn begin(&self, repository: &Path, now: Instant) -> Option<Turn<'_>> {
        let mut all = self.0.lock();
        all.retain(|_, rests| rests.is_none_or(|until| now < until));
        if all.contains_key(repository) {
            return None;
        }
        all.insert(repository.to_owned(), None);
        self.1.send_modify(|turns| *turns += 1);
        Some(Turn(self, repository.to_owned()))
    }

    /// Returns when none is being repacked.
    pub(super) async fn ended(&self) {
        let mut turns = self.1.subscribe();
        let _gone = turns.wait_for(|turns| *turns == 0).await;
    }

    fn rest(&self, repository: &Path, until: Instant) {
        self.0.lock().insert(repository.to_owned(), Some(until));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.0.0.lock();
        if all.get(&self.1).is_some_and(Option::is_none) {
            all.remove(&self.1);
        }
        self.0.1.send_modify(|turns| *turns -= 1);
    }
}

/// Joins packs in the background if a push has made them too many. Whoever serves a repository as a branch keeps it in order by itself.
pub(super) fn after_push(host: &Arc<Inner>, repository: PathBuf) {
    if host.owner.is_some() {
        return;
    }
    let host = host.clone();
    tokio::spawn(async move {
        let Some(turn) = host.upkeep.begin(&repository, Instant::now()) else { return };
        let are_too_many = async || {
            let repository = repository.clone();
            tokio::task::spawn_blocking(move || are_many(&repository)).await.unwrap_or(false)
        };
        if !are_too_many().await {
            return;
        }
        let folder = repository.join("objects/pack");
        let _swept = tokio::task::spawn_blocking(move || sweep(&folder)).await;
        let mut stopped = host.stop.subscribe();
        let stop = async { stopped.wait_for(|stopped| *stopped).await.map(|_| ()).unwrap_or_default() };
        let Some(repacked) = repack(&host, &repository, stop).await else { return };
        match repacked {
            Ok(()) => {
                tracing::debug!(repository = %repository.display(), "joined small packs");
                if are_too_many().await {
                    // It does not help, as with a bound on the size of packs.
                    host.upkeep.rest(&repository, Instant::now() + REST);
                }
            }
            Err(said) => {
                tracing::warn!(
                    repository = %repository.display(),
                    said,
                    "cannot join packs, so reading becomes slower; run `git repack -d --geometric=2` there (Git 2.32 or later) to see why"
                );
                host.upkeep.rest(&repository, Instant::now() + REST);
            }
        }
        drop(turn);
    });
}

/// Whether there are more packs than `gc.autoPackLimit`, and neither `gc.auto` nor `receive.autogc` forbids to join them.
fn are_many(repository: &Path) -> bool {
    let packs = packs(&repository.join("objects/pack"));
    if packs <= FEW {
        return false;
    }
    let Ok(config) = git2::Config::open(&repository.join("config")) else { return false };
    let limit = config.get_i64("gc.autopacklimit").unwrap_or(PACK_LIMIT);
    limit > 0
        && i64::try_from(packs).is_ok_and(|packs| packs > limit)
        && config.get_i64("gc.auto").unwrap_or(1) > 0
        && config.get_bool("receive.autogc").unwrap_or(true)
}

/// Packs that may be joined with others.
fn packs(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| PathBuf::from(entry.file_name()));
    let (mut packs, mut kept) = (0_usize, 0);
    for name in names {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("pack") => packs += 1,
            Some("keep") => kept += 1,
            _ => {}
        }
    }
    packs.saturating_sub(kept)
}

/// `None` if it was stopped before its end.
async fn repack(host: &Inner, repository: &Path, stop: impl Future<Output = ()>) -> Option<Result<(), String>> {
    let mut running = match start(host, repository) {
        Ok(running) => running,
        Err(error) => return Some(Err(error.to_string())),
    };
    let said = running.child().stderr.take();
    let ended = async {
        let said = match said {
            Some(stderr) => complaint(stderr).await,
            None => String::new(),
        };
        match running.child().wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(said),
            Err(error) => Err(error.to_string()),
        }
    };
    let outcome = tokio::select! {
        ended = tokio::time::timeout(LIMIT, ended) => Some(ended.unwrap_or_else(|_| Err(format!("no end within {LIMIT:?}")))),
        () = stop => None,
    };
    running.stop().await;
    outcome
}

fn start(host: &Inner, repository: &Path) -> std::io::Result<Running> {
    let settings = ["-c", "pack.threads=1", "-c", "repack.writeBitmaps=false"];
    let words = ["repack", "--geometric=2", "-d", "-l", "-q"];
    let mut command = host.git.command(&[&settings[..], &words].concat());
    let mut running = Running::start(command.env("GIT_DIR", repository))?;
    if let Some(pid) = running.child().id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
        // It is as good without.
        let _ended = rustix::process::setpriority_process(Some(pid), NICE);
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_packs(packs: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        for pack in 0..packs {
            std::fs::write(folder.path().join(format!("objects/pack/pack-{pack}.pack")), "").unwrap();
        }
        folder
    }

    #[test]
    fn packs_are_many_when_git_says_so() {
        let limit = usize::try_from(PACK_LIMIT).unwrap();
        let folder = with_packs(limit);
        assert!(!are_many(folder.path()));
        std::fs::write(folder.path().join("objects/pack/pack-more.pack"), "").unwrap();
        assert!(are_many(folder.path()));
        std::fs::write(folder.path().join("objects/pack/pack-more.keep"), "").unwrap();
        assert!(!are_many(folder.path()), "one may not be joined");
    }

    #[test]
    fn the_repository_says_whether_and_when() {
        let folder = with_packs(30);
        let set = |name: &str, value: &str| {
            let mut config = git2::Config::open(&folder.path().join("config")).unwrap();
            config.set_str(name, value).unwrap();
        };
        set("gc.autoPackLimit", "20");
        assert!(are_many(folder.path()));
        for (name, off, on) in
            [("gc.autoPackLimit", "0", "20"), ("gc.auto", "0", "6700"), ("receive.autogc", "false", "true")]
        {
            set(name, off);
            assert!(!are_many(folder.path()), "{name}");
            set(name, on);
            assert!(are_many(folder.path()), "{name}");
        }
    }

    #[test]
    fn a_repository_is_repacked_once_at_a_time() {
        let (upkeep, now) = (Upkeep::default(), Instant::now());
        let begin = |name: &str, now| upkeep.begin(Path::new(name), now);
        let turn = begin("a", now);
        assert!(turn.is_some() && begin("a", now).is_none() && begin("b", now).is_some());
        drop(turn);
        let turn = begin("a", now);
        assert!(turn.is_some());
        upkeep.rest(Path::new("a"), now + REST);
        drop(turn);
        assert!(begin("a", now + REST / 2).is_none(), "it failed");
        assert!(begin("a", now + REST).is_some());
    }
}
