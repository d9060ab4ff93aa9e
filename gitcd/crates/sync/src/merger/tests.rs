use std::time::SystemTime;

use git2::{Repository, Signature};
use gitcd_core::keyspace::KeySpace;
use gitcd_core::scope::Scope;
use gitcd_engine::committer::{Committer, Settings};
use gitcd_engine::recovery;
use gitcd_merge::Policy;
use gitcd_repo::boundary::{Boundary, Cut};
use gitcd_repo::branch::{Action, Branch, Change, CommittedHeads, Record, Revisions, State};
use gitcd_repo::graph::Graph;

use super::*;
use crate::plan::Provenance;

const KEY: &str = "/registry/k";

fn config(repository: &std::path::Path) -> Config {
    Config {
        repository: repository.to_owned(),
        name: "default".into(),
        data_reference: "refs/heads/main".into(),
        metadata_reference: "refs/gitcd/metadata/main".into(),
        keys: KeySpace::new("/registry", [""; 0]),
        committer_name: "gitcd".into(),
        committer_email: "gitcd@localhost".into(),
    }
}

/// Creates a branch with one key.
fn branch(config: &Config) {
    let state = State { revision: 2, incarnation: "a".into(), ..State::default() };
    let record = Record { create_revision: 2, mod_revision: 2, version: 1, lease: 0 };
    let change = Change { key: KEY.into(), action: Action::Put { value: "{\"n\":0}\n".into(), record } };
    let revisions =
        Revisions { first: 2, last: 2, time: SystemTime::now(), clients: Vec::new(), changes: vec![change] };
    let mut branch = Branch::create(config.clone(), &State { revision: 1, ..state.clone() }).unwrap();
    branch.commit(&revisions).unwrap();
    branch.flush(&state).unwrap();
}

/// Makes an external commit that changes the key.
fn theirs(repository: &Repository, before: Oid, number: u32) -> Oid {
    let before = repository.find_commit(before).unwrap();
    let blob = repository.blob(format!("{{\n  \"n\": {number}\n}}\n").as_bytes()).unwrap();
    let mut tree = repository.treebuilder(Some(&before.tree().unwrap())).unwrap();
    tree.insert("k", blob, 0o100_644).unwrap();
    let tree = repository.find_tree(tree.write().unwrap()).unwrap();
    let author = Signature::now("other", "other@localhost").unwrap();
    repository.commit(None, &author, &author, "update k", &tree, &[&before]).unwrap()
}

/// Returns a merger for a branch whose committer is not started yet.
fn merger_of(config: &Config) -> (Merger, Committer, store::Handle) {
    let opened = recovery::open(config, 1 << 20).unwrap();
    let (store, writer) = Store::start(opened.start, store::Limits::default()).unwrap();
    let (settings, counters) = (Settings::default(), Arc::default());
    let committer = Committer::new(
        store.clone(),
        opened.branch,
        config.clone(),
        settings,
        opened.incarnation,
        opened.bases,
        counters,
    );
    let merger = Merger::new(store, committer.heads(), config.clone()).unwrap();
    (merger, committer, writer)
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_commit_of_an_external_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    let config = config(&path);
    branch(&config);
    // Like a committer that cannot write: it makes no commit.
    let (merger, _committer, _writer) = merger_of(&config);
    let merger = Arc::new(merger);
    let repository = Repository::open(&path).unwrap();
    let external = theirs(&repository, merger.head().data, 1);
    repository.reference(&config.data_reference, external, true, "an external commit").unwrap();
    let (stop, stopped) = watch::channel(false);
    let before = merger.store().revision();
    let following = tokio::spawn(crate::external::follow(merger.clone(), crate::status::Statuses::default(), stopped));
    while merger.store().revision() == before {
        tokio::task::yield_now().await;
    }
    stop.send_replace(true);
    let stopped = tokio::time::timeout(Duration::from_secs(10), following).await;
    stopped.expect("the stop does not wait for the commit").unwrap();
}

#[tokio::test]
async fn a_wait_for_a_commit_fails_if_the_committer_makes_no_progress() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder.path().join("repo.git"));
    branch(&config);
    let (merger, _committer, _writer) = merger_of(&config);
    let (mut heads, within) = (merger.heads(), Duration::from_millis(10));
    let mut waiting = CommitWait::new(within);
    let error = loop {
        if let Err(error) = waiting.next(&merger, &mut heads).await {
            break error;
        }
    };
    assert!(matches!(error, MergeError::NotCommitted(_)), "{error}");
}

#[tokio::test]
async fn a_merge_that_a_crash_interrupted_does_not_count_as_writes_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    let config = config(&path);
    branch(&config);
    let (merger, committer, writer) = merger_of(&config);
    let store = merger.store().clone();
    let repository = Repository::open(&path).unwrap();
    let first = theirs(&repository, merger.head().data, 1);
    let second = theirs(&repository, first, 2);
    let options = MergeOptions {
        policy: Policy::Later,
        scope: Scope::default(),
        fast_forward: false,
        impatient: true,
        history_link: HistoryLink::Always,
        on_top_of: None,
        strict: false,
        dry_run: DryRun::Never,
        provenance: Provenance::ByMessage,
        by: "test".into(),
    };
    // Drops the first merge once it is durable, but not in Git yet.
    let before = store.revision();
    tokio::select! {
        early = merger.merge(first, &options) => panic!("the committer is not running yet: {early:?}"),
        () = async {
            while store.revision() == before {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    let mut joining = Box::pin(merger.merge(second, &options));
    let planned = tokio::time::timeout(Duration::from_millis(200), &mut joining).await;
    assert!(planned.is_err(), "{planned:?}");
    assert_eq!(store.revision(), before.next(), "the second merge waits for the first");
    let committer = committer.spawn().unwrap();
    assert!(matches!(
        joining.await.unwrap(),
        MergeOutcome::Done { keys: 1, conflicts: super::Conflicts { count: 0, .. }, .. }
    ));
    let tree = repository.find_commit(merger.head().data).unwrap().tree().unwrap();
    let value = repository.find_blob(tree.get_name("k").unwrap().id()).unwrap();
    assert_eq!(value.content(), b"{\n  \"n\": 2\n}\n");
    store.stop().await;
    let ended = tokio::task::spawn_blocking(move || {
        writer.join();
        committer.join().unwrap()
    });
    assert!(ended.await.unwrap());
}

/// Writes another key, and flushes.
fn flushed(config: &Config, revision: i64) -> CommittedHeads {
    let mut branch = Branch::open(config.clone()).unwrap().unwrap();
    let record = Record { create_revision: 3, mod_revision: revision, version: revision - 2, lease: 0 };
    let value = format!("{{\"n\":{revision}}}\n").into();
    let change = Change { key: "/registry/m".into(), action: Action::Put { value, record } };
    let (time, clients, changes) = (SystemTime::now(), Vec::new(), vec![change]);
    branch.commit(&Revisions { first: revision, last: revision, time, clients, changes }).unwrap();
    branch.flush(&State { revision, incarnation: "a".into(), ..State::default() }).unwrap().pair
}

/// Cuts the history, as `gitcd retain` does.
fn cut(repository: &Repository, oldest: CommittedHeads) {
    let tips = ["refs/heads/main", "refs/gitcd/metadata/main"].map(|name| repository.refname_to_id(name).unwrap());
    let plan = Graph::lenient().plan_cut(repository, &[oldest.data, oldest.metadata], &tips).unwrap();
    let cut =
        Cut { reference: "refs/heads/main".into(), revision: 4, data: oldest.data, at: 0, archive: String::new() };
    plan.record(repository.path(), &cut).unwrap();
    plan.apply(repository.path()).unwrap();
}

/// Merges two commits, and takes the key from the second one.
fn merge_by_hand(repository: &Repository, ours: Oid, theirs: Oid) -> Oid {
    let [ours, theirs] = [ours, theirs].map(|oid| repository.find_commit(oid).unwrap());
    let blob = theirs.tree().unwrap().get_name("k").unwrap().id();
    let mut tree = repository.treebuilder(Some(&ours.tree().unwrap())).unwrap();
    tree.insert("k", blob, 0o100_644).unwrap();
    let tree = repository.find_tree(tree.write().unwrap()).unwrap();
    let author = Signature::now("other", "other@localhost").unwrap();
    repository.commit(None, &author, &author, "merge", &tree, &[&ours, &theirs]).unwrap()
}

/// A person with a clone from before the cut merged a line of commits that starts at a removed one, and pushed the merge.
#[tokio::test]
async fn an_external_merge_restores_the_removed_commit_that_it_continues_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    let config = config(&path);
    branch(&config);
    let repository = Repository::open(&path).unwrap();
    let old = repository.refname_to_id(&config.data_reference).unwrap();
    flushed(&config, 3);
    let oldest = flushed(&config, 4);
    let head = flushed(&config, 5).data;
    cut(&repository, oldest);
    assert!(Boundary::read(&path).unwrap().removed(old).unwrap());
    let external = merge_by_hand(&repository, head, theirs(&repository, old, 1));
    repository.reference(&config.data_reference, external, true, "an external commit").unwrap();
    let (merger, committer, writer) = merger_of(&config);
    let store = merger.store().clone();
    let committer = committer.spawn().unwrap();
    let outcome = merger.merge(external, &crate::external::options("test")).await.unwrap();
    assert!(matches!(outcome, MergeOutcome::Done { keys: 1, .. }), "{outcome:?}");
    assert!(Boundary::read(&path).unwrap().has(old));
    let is_merged = merger.is_ancestor(external, merger.head().data).await;
    assert!(is_merged.unwrap());
    assert_eq!(repository.refname_to_id(&config.data_reference).unwrap(), merger.head().data);
    store.stop().await;
    let ended = tokio::task::spawn_blocking(move || {
        writer.join();
        committer.join().unwrap()
    });
    assert!(ended.await.unwrap());
}
