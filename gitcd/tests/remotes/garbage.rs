//! Remotes with unreadable commits.

use std::path::{Path, PathBuf};

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::support::build::get;
use crate::support::{DATA, Repository};
use crate::world::{Follower, Following, ONE, OTHER, bare, commit, holds, remote};

const NEW: &str = "/registry/configmaps/n/new";

/// The path of a loose object.
fn loose(repository: &Repository, id: &str) -> PathBuf {
    repository.path().join("objects").join(&id[..2]).join(&id[2..])
}

fn replace(path: &Path, content: &[u8]) {
    // Git makes objects read-only, and they may be hard links.
    std::fs::remove_file(path).expect("the temporary folder is writable");
    std::fs::write(path, content).expect("the temporary folder is writable");
}

/// Damages an object in the given way.
fn damage(repository: &Repository, kind: &str, id: &str) {
    let file = loose(repository, id);
    match kind {
        "missing" => std::fs::remove_file(&file).expect("the temporary folder is writable"),
        "empty" => replace(&file, b""),
        "cut" => {
            let content = std::fs::read(&file).expect("the temporary folder is writable");
            replace(&file, &content[..content.len() / 2]);
        }
        // A valid zlib stream, but of another object.
        "another" => {
            let other = std::fs::read(loose(repository, &repository.blob("something else")))
                .expect("the temporary folder is writable");
            replace(&file, &other);
        }
        other => panic!("{other}"),
    }
}

/// Pushes a commit whose blob, tree or commit is damaged in each of these ways; each is reported, then repaired and merged.
async fn repaired(upstream: Repository, url: &str, ways: &[(&str, &str)]) {
    let expected = Condition::Damaged;
    let writer = Following::new(url).start().await;
    writer.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    writer.is(Condition::Synced).await;
    for (round, (what, kind)) in ways.iter().enumerate() {
        let value = format!("theirs {what} {kind}");
        let blob = upstream.blob(&value);
        let before = upstream.reference(DATA);
        let made = commit(&upstream, "configmaps/n/new", &blob, &[&before]);
        let tree = upstream.git(&["rev-parse", &format!("{made}:configmaps/n")]).trim().to_owned();
        let object = match *what {
            "blob" => &blob,
            "tree" => &tree,
            _ => &made,
        };
        let file = loose(&upstream, object);
        let content = std::fs::read(&file).expect("the temporary folder is writable");
        damage(&upstream, kind, object);
        // Written directly: Git sets a reference only to a commit that it can read.
        let reference = upstream.path().join(DATA);
        std::fs::write(reference.with_extension("new"), format!("{made}\n")).expect("the temporary folder is writable");
        std::fs::rename(reference.with_extension("new"), reference).expect("the temporary folder is writable");
        // Local writes must succeed meanwhile, and nothing of the damaged commit may be merged.
        writer.fails_with(expected, &[]).await;
        writer.put(OTHER, &value).await;
        nothing_wrong(&writer, &ways[..round]).await;
        assert_eq!(remote(&writer.server).await.condition, expected, "{value}");
        let error = remote(&writer.server).await.error.unwrap_or_default();
        assert!(error.contains(object.as_str()), "{object} is not named: {error}");
        let _damaged = std::fs::remove_file(&file);
        std::fs::write(&file, content).expect("the temporary folder is writable");
        writer.has(NEW, &value).await;
        holds(&upstream, OTHER, &value).await;
        writer.has(ONE, "1").await;
        writer.is(Condition::Synced).await;
    }
    upstream.fsck();
    writer.server.repository().fsck();
}

/// Checks that the value is still that of the previous round.
async fn nothing_wrong(writer: &Follower, rounds: &[(&str, &str)]) {
    let found = writer.client.range(get(NEW)).await.ok().kvs;
    let expected = rounds.last().map(|(what, kind)| format!("theirs {what} {kind}"));
    assert_eq!(found.first().map(|pair| String::from_utf8_lossy(&pair.value).into_owned()), expected);
}

const WAYS: [(&str, &str); 6] = [
    ("blob", "missing"),
    ("blob", "another"),
    ("tree", "missing"),
    ("tree", "cut"),
    ("blob", "empty"),
    ("commit", "cut"),
];

#[tokio::test]
async fn a_damaged_folder_is_reported_and_gone_on_with_when_it_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    repaired(upstream, &url, &WAYS).await;
}

#[tokio::test]
async fn a_damaged_repository_of_a_host_is_reported_and_gone_on_with_when_it_is_repaired() {
    let host = Host::open().await;
    // Git's reference advertisement omits references to unreadable commits, so the last way does not apply.
    repaired(host.make(), &host.url(), &WAYS[..5]).await;
}

/// The follower has a commit without its tree, as left by a `git fetch` that was killed while unpacking.
async fn here_in_part(upstream: Repository, following: Following) {
    let follower = following.start().await;
    follower.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    follower.is(Condition::Synced).await;
    let before = upstream.reference(DATA);
    let made = commit(&upstream, "configmaps/n/new", &upstream.blob("theirs"), &[&before]);
    let here = loose(&follower.server.repository(), &made);
    std::fs::create_dir_all(here.parent().expect("an object file has a parent folder"))
        .expect("the temporary folder is writable");
    std::fs::copy(loose(&upstream, &made), here).expect("the temporary folder is writable");
    upstream.git(&["update-ref", DATA, &made, &before]);
    follower.has(NEW, "theirs").await;
    follower.put(OTHER, "2").await;
    holds(&upstream, OTHER, "2").await;
    follower.is(Condition::Synced).await;
    follower.server.repository().fsck();
    upstream.fsck();
}

#[tokio::test]
async fn what_came_from_a_folder_in_part_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let following = Following::of(upstream.path());
    here_in_part(upstream, following).await;
}

#[tokio::test]
async fn what_came_from_a_host_in_part_is_fetched_again() {
    let host = Host::open().await;
    here_in_part(host.make(), Following::new(&host.url())).await;
}

#[tokio::test]
async fn what_came_through_the_git_program_in_part_is_fetched_again() {
    let host = Host::open().await;
    here_in_part(host.make(), Following::new(&host.url()).setting("http.extraHeader", "X-Test: 1")).await;
}
