//! A repository with a journal, as another process writes it.

use std::sync::Arc;

use gitcd::journal::record::{Change, Put, Record, Write};
use gitcd::journal::{Segments, Writer};
use gitcd::recovery::{self, Beginning};
use tempfile::TempDir;

use super::*;

/// Ends in any case before the test is stopped.
const LONG: Duration = Duration::from_mins(2);
/// Nothing can be committed here, so that a wait is in vain.
const SHORT: Duration = Duration::from_millis(1);

struct Store {
    folder: TempDir,
    selected: Selected,
    journal: Writer,
}

impl Store {
    /// Creates a branch whose revision in Git is 1.
    fn new() -> Self {
        let folder = TempDir::new().expect("the temporary folder is writable");
        let keys = KeySpace::new("/registry", ["/registry/events"]);
        let config = Config { keys, ..Config::named(folder.path().join("repo.git"), "default") };
        recovery::init(&config, Beginning::default()).expect("the branch is new");
        let state = recovery::state_folder(&config);
        std::fs::write(state.join("keys"), config.keys.to_string()).expect("the folder is writable");
        let selected = Selected::new(
            Location {
                repository: config.repository,
                data: config.data_reference,
                metadata: config.metadata_reference,
                kubeconfig: None,
            },
            false,
        );
        let text = selected.open().expect("there is a branch").incarnation().expect("it is recorded");
        let bytes = (0..32).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("it is a number"));
        let incarnation: Vec<u8> = bytes.collect();
        let incarnation = incarnation.try_into().expect("it has 16 bytes");
        let journal = Writer::create(&state.join("journal"), incarnation, 1, 1 << 20, Arc::<Segments>::default());
        Self { folder, selected, journal: journal.expect("the folder is writable") }
    }

    fn write(&mut self, revision: i64, key: &'static str, is_put: bool) {
        let revision = Revision::new(revision);
        let put = Put { create_revision: revision, version: 1, lease: 0, value: "{}".into(), value_offset: 0 };
        let changes = vec![Change { key: key.into(), put: is_put.then_some(put) }];
        Record::Write(Write { revision, time_ms: 0, client: String::new(), changes }).encode(self.journal.begin());
        self.journal.commit(revision).expect("the disk is healthy");
    }

    async fn settled(&self, revision: Option<i64>, within: Duration) -> Result<i64, String> {
        let opened = self.selected.open_settled_within(revision, within).await;
        opened.map(|branch| branch.history.revision()).map_err(|error| format!("{error:#}"))
    }
}

#[tokio::test]
async fn events_that_are_never_committed_are_not_awaited() {
    let mut store = Store::new();
    assert_eq!(store.settled(None, LONG).await, Ok(1), "nothing was written");
    store.write(2, "/registry/events/n/a", true);
    for revision in [Some(1), Some(2), None] {
        assert_eq!(store.settled(revision, LONG).await, Ok(1), "{revision:?}");
    }
}

#[tokio::test]
async fn a_write_that_is_not_committed_is_awaited_however_long_it_takes() {
    let mut store = Store::new();
    store.write(2, "/registry/configmaps/n/a", true);
    store.write(3, "/registry/events/n/a", true);
    for (revision, reported) in [(Some(3), 3), (None, 3), (Some(2), 2)] {
        let error = store.settled(revision, SHORT).await.expect_err("Git lacks it");
        let what = format!("has not committed the writes up to revision {reported} within");
        assert!(error.contains(&what) && error.contains("`gitcd status`"), "{error}");
    }
    assert_eq!(store.settled(Some(1), SHORT).await, Ok(1), "what follows is not awaited");
}

/// Under load, the store makes no commit of it.
#[tokio::test]
async fn a_key_that_was_created_and_deleted_does_not_fail_the_command() {
    let mut store = Store::new();
    store.write(2, "/registry/configmaps/n/a", true);
    store.write(3, "/registry/configmaps/n/a", false);
    assert_eq!(store.settled(Some(3), SHORT).await, Ok(1));
}

#[tokio::test]
async fn a_clone_is_read_as_it_is() {
    let mut store = Store::new();
    store.write(2, "/registry/configmaps/n/a", true);
    std::fs::remove_dir_all(store.folder.path().join("repo.git/gitcd")).expect("there is a folder");
    assert_eq!(store.settled(Some(2), LONG).await, Ok(1));
    assert!(store.selected.open_with(2, &[]).await.expect("it can be read").is_none());
}
