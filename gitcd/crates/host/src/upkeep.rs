//! Repacks after pushes: every push adds a pack, and each pack makes all later reads a little slower.
//!
//! When there are too many, the small ones are combined into one, as for served branches ([`maintenance::join_pushed`]).
//! `git repack` would do it in one command, but relies on what it read at its start: if a `.keep` file appears meanwhile,
//! objects are lost.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::blocking::{self, Panicked};
use gitcd_core::error::chain;
use gitcd_engine::maintenance;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Inner;

/// Pause after a failed repack of a repository.
const REST: Duration = Duration::from_mins(10);

/// Repositories that are being repacked (`None`), and those whose repack failed, with the end of their pause.
#[derive(Clone, Debug, Default)]
pub(super) struct Upkeep(Arc<Mutex<HashMap<PathBuf, Option<Instant>>>>, watch::Sender<usize>);

/// A running repack of a repository; ends when dropped.
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

    /// Waits until no repack is running.
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

/// Repacks in the background if a push has left too many packs. Served branches have their own maintenance.
pub(super) fn after_push(host: &Arc<Inner>, repository: PathBuf) {
    if host.owner.is_some() {
        return;
    }
    let host = host.clone();
    tokio::spawn(async move {
        let Some(turn) = host.upkeep.begin(&repository, Instant::now()) else { return };
        // In a task of its own: a panic is a failure like others.
        let repacked = tokio::spawn(repack(host.clone(), repository.clone())).await;
        let repacked = repacked.unwrap_or_else(|error| Err(Panicked::of_task("repack", error).to_string()));
        match repacked {
            Ok(None) => {}
            Ok(Some(packs)) => tracing::debug!(repository = %repository.display(), packs, "repacked small packs"),
            Err(error) => {
                tracing::warn!(
                    repository = %repository.display(),
                    error,
                    again_in = ?REST,
                    "cannot repack; nothing is lost, but reads become slower"
                );
                host.upkeep.rest(&repository, Instant::now() + REST);
            }
        }
        drop(turn);
    });
}

/// Repacks the small packs of a repository, if it has too many, and returns how many they were.
async fn repack(host: Arc<Inner>, repository: PathBuf) -> Result<Option<usize>, String> {
    let at = repository.clone();
    let wanted = blocking::run("read the configuration", move || is_wanted(&at)).await;
    if !wanted.map_err(|error| error.to_string())? {
        return Ok(None);
    }
    maintenance::join_pushed(&host.git, &repository, &host.stop.subscribe()).await.map_err(|error| chain(&error))
}

/// Whether the repository's `receive.autogc` allows repacks after a push.
fn is_wanted(repository: &Path) -> bool {
    let config = git2::Config::open(&repository.join("config"));
    config.is_ok_and(|config| config.get_bool("receive.autogc").unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_says_whether() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        assert!(is_wanted(folder.path()));
        for wanted in [false, true] {
            let mut config = git2::Config::open(&folder.path().join("config")).unwrap();
            config.set_bool("receive.autogc", wanted).unwrap();
            assert_eq!(is_wanted(folder.path()), wanted);
        }
    }

    #[test]
    fn a_repository_is_kept_in_order_by_one_at_a_time() {
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
