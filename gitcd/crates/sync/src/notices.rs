//! Change notifications of remotes, which make polling unnecessary.

use std::time::Duration;

use git2::Oid;
use gitcd_repo::branch;
use gitcd_repo::git_dir;
use gitcd_repo::watch::{Changes, RefWatcher};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::git_worker::blocking;
use super::remote::{Link, Location, Remote};
use super::smart::Events;

/// The change notifications of a remote, if it is a folder on this machine or a host that sends them.
#[derive(Debug, Default)]
pub(super) struct Notices {
    location: Option<Location>,
    source: Option<Source>,
    /// When to try a host again that did not start to send notifications.
    not_before: Option<Instant>,
    /// When the current source was opened.
    since: Option<Instant>,
    /// When to reopen a source that has ended, and after which pause.
    again: Option<(Instant, Duration)>,
}

/// How long to wait for the start of a host's stream, which a proxy may hold back.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a stream that did not start.
const PAUSE: Duration = Duration::from_mins(5);
/// First pause before a stream that has ended is reopened, with an exchange; doubled each time that it ends soon,
pub(super) const FOLLOW_AGAIN: Duration = Duration::from_secs(1);
/// up to this.
const FOLLOW_AGAIN_AT_LAST: Duration = Duration::from_secs(30);
/// A source that has lasted this long is reopened after the first pause.
const LONG: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Source {
    Folder(Changes),
    Host(Events),
}

impl Notices {
    /// Opens the source of notifications, unless it is open. Asks a host only if it is known to be reachable.
    pub(super) async fn open(&mut self, remote: &Remote, config: &branch::Config, link: &Link, is_there: bool) {
        let (wanted, repository) = (remote.clone(), config.repository.clone());
        let Ok(location) = blocking(move || wanted.location(&repository)).await else {
            *self = Self::default();
            return;
        };
        if self.source.is_some() && self.location.as_ref() == Some(&location) {
            return;
        }
        if self.location.as_ref() != Some(&location) {
            *self = Self { location: Some(location.clone()), ..Self::default() };
        }
        let found = match &location {
            Location::Folder(folder) => {
                let (theirs, own) = (remote.data_reference.clone(), config.data_reference.clone());
                let (folder, wanted) = (folder.clone(), move |name: &str| name == theirs || name == own);
                let watcher = blocking(move || RefWatcher::new(&folder, wanted)).await;
                watcher.map(|watcher| Some(Source::Folder(watcher.changes()))).map_err(drop)
            }
            Location::Url(url) if is_there => {
                if self.not_before.is_some_and(|until| Instant::now() < until) {
                    return;
                }
                let (wanted, here) = (remote.clone(), git_dir(&config.repository));
                let (link, url, runtime) = (link.clone(), url.clone(), Handle::current());
                // Blocking: settings, credentials and trusted certificates are read from files.
                let begun = blocking(move || {
                    runtime.block_on(async { tokio::time::timeout(PATIENCE, wanted.events(&here, &link, &url)).await })
                });
                let begun = begun.await;
                self.not_before = begun.is_err().then(|| Instant::now() + PAUSE);
                begun.map_or(Ok(None), |begun| begun.map(|events| events.map(Source::Host)).map_err(drop))
            }
            Location::Url(_) => Ok(None),
        };
        match found {
            Ok(source) => {
                self.since = source.is_some().then(Instant::now);
                self.source = source;
                // A host is tried again once it is reachable; a remote that sends no notifications is not tried again.
                if self.source.is_none() {
                    self.again = None;
                }
            }
            // An unreachable remote is tried again after each pause.
            Err(()) => self.ended(),
        }
    }

    /// Records that the source has ended, or cannot be opened.
    fn ended(&mut self) {
        self.source = None;
        let active_for = self.since.take().map(|since| since.elapsed());
        let pause = match self.again {
            Some((_, before)) if active_for.is_none_or(|active_for| active_for < LONG) => {
                (before * 2).min(FOLLOW_AGAIN_AT_LAST)
            }
            _ => FOLLOW_AGAIN,
        };
        self.again = Some((Instant::now() + pause, pause));
    }

    /// Returns whether notifications are received.
    pub(super) fn is_active(&self) -> bool {
        self.source.is_some()
    }

    /// Returns the remote's location when the source was last opened.
    pub(super) fn location(&self) -> Option<&Location> {
        self.location.as_ref()
    }

    /// Waits until a reference may have changed to a commit that is not known, or until the pause after the end of the source is
    /// over.
    pub(super) async fn next(
        &mut self,
        remote: &Remote,
        config: &branch::Config,
        is_known: impl Fn(&str, Oid) -> bool + Send + Sync,
    ) {
        let is_news = |reference: &str, new: Option<Oid>| {
            (reference == remote.data_reference || reference == config.data_reference)
                && !new.is_some_and(|new| is_known(reference, new))
        };
        let is_active = match &mut self.source {
            Some(Source::Folder(changes)) => loop {
                match changes.next().await {
                    Some(changes) if !changes.iter().any(|change| is_news(&change.reference, change.new)) => {}
                    changes => break changes.is_some(),
                }
            },
            Some(Source::Host(events)) => events.next(is_news).await.is_ok(),
            None => false,
        };
        if !is_active {
            if self.source.is_some() {
                self.ended();
            }
            match self.again {
                Some((again, _)) => tokio::time::sleep_until(again).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use git2::Repository;

    use super::*;
    use gitcd_core::keyspace::KeySpace;

    fn config(repository: &Path) -> branch::Config {
        branch::Config {
            repository: repository.into(),
            name: "default".into(),
            data_reference: "refs/heads/main".into(),
            metadata_reference: "refs/gitcd/metadata/main".into(),
            keys: KeySpace::new("/registry", [] as [&str; 0]),
            committer_name: "here".into(),
            committer_email: "here@example.org".into(),
        }
    }

    /// The pause is over in time although the caller also waits for other events, and drops the future.
    #[tokio::test]
    async fn a_remote_whose_notifications_end_is_polled_soon_however_often_the_wait_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        Repository::init_bare(&there).unwrap();
        Repository::init_bare(&here).unwrap().remote("up", there.to_str().unwrap()).unwrap();
        let (remote, config, link) = (Remote::named("up", "refs/heads/main"), config(&here), Link::default());
        let mut notices = Notices::default();
        notices.open(&remote, &config, &link, true).await;
        assert!(notices.is_active());
        std::fs::remove_dir_all(&there).unwrap();
        let is_known = |_: &str, _| false;
        let ended = Instant::now();
        while notices.is_active() {
            assert!(ended.elapsed() < Duration::from_mins(1), "a deleted repository is still followed");
            let step = notices.next(&remote, &config, is_known);
            let _other = tokio::time::timeout(Duration::from_millis(20), step).await;
        }
        let next = notices.next(&remote, &config, is_known);
        tokio::time::timeout(Duration::from_mins(1), next).await.expect("the pause ends");
        // The pauses grow while the repository is missing.
        let pauses = [2, 4, 8, 16, 30, 30].map(Duration::from_secs);
        for pause in pauses {
            notices.open(&remote, &config, &link, true).await;
            assert_eq!(notices.again.map(|(_, pause)| pause), Some(pause));
        }
        Repository::init_bare(&there).unwrap();
        notices.open(&remote, &config, &link, true).await;
        assert!(notices.is_active());
    }
}
