//! Clones whose references were fetched at different times.

use std::path::Path;

use crate::support::build::put;
use crate::support::{DATA, Kind, Launch, METADATA, Repository, Server};
use crate::world::{ONE, OTHER, has};

async fn write(server: &Server, key: &str, value: &str) {
    server.client().await.put(put(key, value)).await.ok();
}

fn fetch(origin: &Server, clone: &Repository, reference: &str) {
    let path = origin.repository().path().display().to_string();
    clone.git(&["fetch", "--quiet", &path, &format!("+{reference}:{reference}")]);
}

fn empty(folder: &Path) -> Repository {
    let path = folder.join("repo.git");
    let made = std::process::Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&path).status();
    assert!(made.expect("git is installed").success());
    Repository::at(&path)
}

/// Serves a clone whose `first` reference was fetched before the last writes, and whose `then` reference after them.
async fn served(first: &str, then: &str) {
    let mut origin = Server::start(Kind::Gitcd).await;
    write(&origin, ONE, "1").await;
    origin.terminate().await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let clone = empty(folder.path());
    fetch(&origin, &clone, first);
    origin.restart().await;
    write(&origin, ONE, "2").await;
    write(&origin, OTHER, "3").await;
    origin.terminate().await;
    fetch(&origin, &clone, then);
    let mut server = Launch::new(Kind::Gitcd).folder(folder.path()).start().await;
    let client = server.client().await;
    has(&client, ONE, "2").await;
    has(&client, OTHER, "3").await;
    write(&server, ONE, "4").await;
    server.kill();
    server.restart().await;
    has(&server.client().await, ONE, "4").await;
    server.terminate().await;
    clone.fsck();
    // The branch must contain all of the origin's history.
    let theirs = origin.repository().reference(DATA);
    clone.git(&["merge-base", "--is-ancestor", &theirs, DATA]);
}

#[tokio::test]
async fn data_that_is_behind_its_metadata_catches_up() {
    served(DATA, METADATA).await;
}

#[tokio::test]
async fn data_that_is_ahead_of_its_metadata_is_merged() {
    served(METADATA, DATA).await;
}

/// If gitcd has served the branch here, a branch that is behind was moved back by another program: an operator has to decide.
#[tokio::test]
async fn a_branch_that_was_served_here_and_is_moved_back_is_left_to_people() {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server, ONE, "1").await;
    server.terminate().await;
    let (repository, before) = (server.repository(), server.repository().reference(DATA));
    server.restart().await;
    write(&server, ONE, "2").await;
    server.terminate().await;
    let at = repository.reference(DATA);
    repository.git(&["update-ref", DATA, &before]);
    let refused = server.restart_in_vain().await.output;
    let remedy = format!("git update-ref {DATA} {at}");
    assert!(refused.contains("another program changed it") && refused.contains(&remedy), "{refused}");
    repository.git(&["update-ref", DATA, &at]);
    server.restart().await;
    has(&server.client().await, ONE, "2").await;
}
