//! Records and boundaries of cuts that are not the last one, or were not made.

use super::super::super::join::write_commit_graph;
use super::*;

/// Until it is pruned, a reference may be made to what the second cut removed.
#[tokio::test]
async fn a_reference_to_a_commit_between_two_cuts_does_not_lead_to_what_the_first_one_removed() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3", "4"]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.git");
    retain(&git, &bare, &archive, &line[2], Killed::Never).await;
    assert!(!bare.has(&line[1]));
    retain(&git, &bare, &archive, &line[4], Killed::Searched).await;
    bare.git(&["update-ref", "refs/heads/again", &line[3]]);
    assert_eq!(bare.git(&["rev-list", "--count", "--all"]), "3");
    bare.git(&["fsck", "--full", "--strict"]);
    bare.git(&["gc", "--quiet"]);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(Some(Duration::ZERO), DAY).await.1, 0);
    assert!(bare.has(&line[2]) && bare.has(&line[3]));
    bare.git(&["update-ref", "-d", "refs/heads/again"]);
    bare.age(20 * DAY);
    assert_eq!(bare.prune(Some(Duration::ZERO), DAY).await.1, 0);
    assert!(!bare.has(&line[2]) && !bare.has(&line[3]));
    check(&bare, &line, 4, "the former boundary is pruned");
}

#[tokio::test]
async fn the_commit_graph_is_written_unless_the_history_is_cut() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let retention = start(&git, &bare);
    let has_graph = async || {
        write_commit_graph(&git, &retention.turn.place, true, &retention.stopped).await.unwrap();
        bare.folder().join("objects/info/commit-graphs/commit-graph-chain").exists()
    };
    let planned = plan(&bare, &line[2]);
    // Killed before the cut was made.
    retention.record(&planned, None).unwrap();
    assert!(boundary::is_cut(bare.folder()).unwrap() && has_graph().await);
    retention.make(&planned, None).unwrap();
    assert!(!has_graph().await);
    // As `git fetch --unshallow` does.
    fs::remove_file(bare.folder().join("shallow")).unwrap();
    assert!(boundary::is_cut(bare.folder()).unwrap() && has_graph().await);
}
