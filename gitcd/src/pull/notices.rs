//! Changes that remotes tell of, so that they need not be asked.

use std::time::{Duration, Instant};

use git2::Oid;

use super::pace::Known;
use super::remote::{Link, Place, Remote};
use super::smart::Events;
use crate::git::branch;
use crate::git::watch::{Changes, RefWatcher};
use crate::recovery::git_dir;

/// Tells of changes in a remote that is a folder of this machine, or a host that tells of them.
#[derive(Debug, Default)]
pub(super) struct Notices {
    place: Option<Place>,
    source: Option<Source>,
    /// A host that did not begin to tell is not asked again before this.
    not_before: Option<Instant>,
}

/// A host begins to tell in this time; what stands between may keep it to itself.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_mins(5);
/// After this a remote that does not tell any more is looked at, and followed again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Source {
    Folder(Changes),
    Host(Events),
}

impl Notices {
    /// Follows the remote's references, if they can be followed and are not yet. A host is asked only if it is known to be there.
    pub(super) async fn open(&mut self, remote: &Remote, config: &branch::Config, link: &Link, is_there: bool) {
        let Ok(place) = remote.place(&config.repository) else {
            *self = Self::default();
            return;
        };
        if self.source.is_some() && self.place.as_ref() == Some(&place) {
            return;
        }
        if self.place.as_ref() != Some(&place) {
            *self = Self { place: Some(place.clone()), ..Self::default() };
        }
        // A remote that is away is looked at again after every attempt.
        self.source = match &place {
            Place::Folder(folder) => {
                let (theirs, own) = (remote.data_reference.clone(), config.data_reference.clone());
                let (folder, wanted) = (folder.clone(), move |name: &str| name == theirs || name == own);
                let watcher = tokio::task::spawn_blocking(move || RefWatcher::new(&folder, wanted)).await;
                let watcher = watcher.expect("reading references does not panic").ok();
                watcher.map(|watcher| Source::Folder(watcher.changes()))
            }
            Place::Url(url) if is_there => {
                if self.not_before.is_some_and(|until| Instant::now() < until) {
                    return;
                }
                let here = git_dir(&config.repository);
                let begun = tokio::time::timeout(PATIENCE, remote.events(&here, link, url)).await;
                self.not_before = begun.is_err().then(|| Instant::now() + PAUSE);
                begun.ok().and_then(Result::ok).flatten().map(Source::Host)
            }
            Place::Url(_) => None,
        };
    }

    /// Whether changes are told of.
    pub(super) fn is_told(&self) -> bool {
        self.source.is_some()
    }

    /// Where the remote was when it was last followed.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Returns when something may have changed that is not known yet, nor `ours`; also a moment after nobody tells of it any more.
    pub(super) async fn next(
        &mut self,
        remote: &Remote,
        config: &branch::Config,
        known: &Known,
        ours: impl Fn() -> Oid + Send + Sync,
    ) {
        let is_news = |reference: &str, new: Option<Oid>| {
            let is_own = reference == config.data_reference;
            (reference == remote.data_reference || is_own)
                && !new.is_some_and(|new| known.has(new) || is_own && new == ours())
        };
        let is_told = match &mut self.source {
            Some(Source::Folder(changes)) => loop {
                match changes.next().await {
                    Some(changes) if !changes.iter().any(|change| is_news(&change.reference, change.new)) => {}
                    changes => break changes.is_some(),
                }
            },
            Some(Source::Host(events)) => events.next(is_news).await.is_ok(),
            None => false,
        };
        if !is_told {
            if self.source.take().is_none() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }
}
