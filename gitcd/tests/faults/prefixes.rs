//! A branch served with other prefixes than those it was created with is refused: keys would be looked up in the wrong place.

use super::{explains, holds, recovers, write};
use crate::support::build::{get, put};
use crate::support::{DATA, Kind, Launch, METADATA, Server};

const WRITES: usize = 5;
const EVENT: &str = "/registry/events/default/e";

fn launch(folder: &std::path::Path, ephemeral: &str) -> Launch {
    Launch::new(Kind::Gitcd).folder(folder).argument(format!("--ephemeral-prefixes=default={ephemeral}"))
}

/// Asserts that serving the first server's folder with another flag is refused.
async fn refused(first: &Server, launch: Launch, words: &[&str]) {
    let repository = first.repository();
    let references = [repository.reference(DATA), repository.reference(METADATA)];
    let exit = launch.spawn().exit().await;
    explains(&exit, &[&["served with other prefixes"], words].concat());
    assert_eq!(
        [repository.reference(DATA), repository.reference(METADATA)],
        references,
        "a refused start must change nothing"
    );
}

#[tokio::test]
async fn another_key_prefix_is_refused_and_the_recorded_one_goes_on() {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..WRITES).await;
    // Stopped gracefully with everything in Git, and killed.
    for peaceful in [true, false] {
        if peaceful {
            server.terminate().await;
        } else {
            server.kill();
        }
        for prefix in ["/", "/registry/tests", "/other"] {
            let other =
                Launch::new(Kind::Gitcd).folder(server.folder()).argument(format!("--key-prefixes=default={prefix}"));
            refused(&server, other, &["--key-prefixes", "prefix /registry/"]).await;
        }
        server.restart().await;
        holds(&server.client().await, 0..WRITES).await;
    }
    server.kill();
    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn other_ephemeral_prefixes_are_refused_and_the_recorded_ones_go_on() {
    let mut server = Launch::new(Kind::Gitcd)
        .argument("--ephemeral-prefixes=default=/registry/events:/registry/masterleases")
        .start()
        .await;
    let client = server.client().await;
    write(&client, 0..WRITES).await;
    client.put(put(EVENT, "1")).await.ok();
    server.kill();
    for ephemeral in ["", "/registry/events", "/registry/events:/registry/masterleases:/registry/tests"] {
        let other = launch(server.folder(), ephemeral);
        refused(&server, other, &["--ephemeral-prefixes", "ephemeral /registry/masterleases"]).await;
    }
    let without = Launch::new(Kind::Gitcd).folder(server.folder());
    refused(&server, without, &["--ephemeral-prefixes", "ephemeral /registry/events"]).await;

    // The same prefixes in another order and with trailing slashes are equal.
    let again = launch(server.folder(), "/registry/masterleases/:/registry/events").start().await;
    assert_eq!(again.client().await.range(get(EVENT)).await.ok().count, 1);
    drop(again);
    recovers_with_event(&mut server).await;
}

async fn recovers_with_event(server: &mut Server) {
    server.restart().await;
    let client = server.client().await;
    holds(&client, 0..WRITES).await;
    assert_eq!(client.range(get(EVENT)).await.ok().count, 1, "ephemeral keys are recovered from the journal");
    server.repository().fsck();
}

#[tokio::test]
async fn a_start_that_was_refused_records_no_prefix() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    // `init` maps files committed by hand to keys by its prefix: here the default, "/".
    let repository = crate::support::Repository::at(&folder.path().join("repo.git"));
    std::fs::create_dir(repository.path()).expect("the temporary folder is writable");
    repository.git(&["init", "--quiet", "--bare", "--initial-branch=main"]);
    let blob = repository.blob("{}\n");
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},pods/default/a")]);
    let tree = repository.git(&["write-tree"]);
    let commit = repository.git(&["commit-tree", tree.trim(), "-m", "by hand"]);
    repository.git(&["update-ref", DATA, commit.trim()]);
    let repository = crate::support::Repository::init(repository.path());

    let wrong = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=default=/registry");
    explains(&wrong.spawn().exit().await, &["/pods/default/a", "prefix"]);
    let right = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=default=/");
    let server = right.start().await;
    assert_eq!(server.client().await.range(get("/pods/default/a")).await.ok().count, 1);
    repository.fsck();
}

#[tokio::test]
async fn the_prefixes_stay_recorded_when_a_branch_resumes_without_its_journal() {
    let mut server = Launch::new(Kind::Gitcd).argument("--ephemeral-prefixes=default=/registry/events").start().await;
    write(&server.client().await, 0..WRITES).await;
    server.terminate().await;
    std::fs::remove_dir_all(server.repository().path().join("gitcd/default/journal")).expect("the journal exists");
    server.restart().await;
    server.client().await.put(put(EVENT, "1")).await.ok();
    server.kill();
    refused(&server, launch(server.folder(), "/registry/masterleases"), &["--ephemeral-prefixes"]).await;
    recovers_with_event(&mut server).await;
}
