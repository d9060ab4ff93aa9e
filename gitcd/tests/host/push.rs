//! Pushes.

use std::path::PathBuf;
use std::thread;

use super::eventually;
use super::process::Host;

const NOTHING: Vec<PathBuf> = Vec::new();

#[test]
fn branches_and_tags_are_made_moved_and_deleted() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let first = work.id("HEAD");
    let second = work.commit("second");
    work.git(&["tag", "--annotate", "--message=v1", "v1"]);
    work.git(&["push", "--quiet", "origin", "main", "main:refs/heads/deep/er/branch", "v1"]);
    assert_eq!(served.id("main"), second);
    assert_eq!(served.id("deep/er/branch"), second);
    assert_eq!(served.id("v1^{commit}"), second);
    served.git(&["pack-refs", "--all"]);
    work.git(&["push", "--quiet", "origin", ":deep/er/branch", ":v1", &format!("{first}:refs/heads/other")]);
    assert_eq!(served.references(), format!("refs/heads/main {second}\nrefs/heads/other {first}"));
    // A branch name that was a folder before.
    work.git(&["push", "--quiet", "origin", "main:refs/heads/deep"]);
    assert_eq!(served.id("deep"), second);
    served.fsck();
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn who_has_not_seen_the_latest_state_is_refused_and_may_still_force() {
    let host = Host::start(&[]);
    let one = host.work("one");
    let two = host.clone("two");
    one.commit("of one");
    one.git(&["push", "--quiet", "origin", "main"]);
    let of_two = two.commit("of two");
    two.fails(&["push", "origin", "main"]);
    // `git` itself refused that push; the host must refuse one whose lease is stale.
    two.fails(&["push", "--force-with-lease=main:HEAD~1", "origin", "main"]);
    two.git(&["push", "--quiet", "--force", "origin", "main"]);
    assert_eq!(host.repository("a.git").id("main"), of_two);
    host.repository("a.git").fsck();
}

#[test]
fn of_those_who_move_a_branch_at_the_same_time_exactly_one_wins() {
    let host = Host::start(&[]);
    host.work("first");
    let served = host.repository("a.git");
    let clients = [host.clone("one"), host.clone("two")];
    let local = clients[0].id("HEAD");
    for round in 0..8 {
        let base = served.id("main");
        let ids: Vec<_> = (0..2)
            .map(|at| {
                clients[at].git(&["fetch", "--quiet"]);
                clients[at].git(&["reset", "--quiet", "--hard", &base]);
                clients[at].commit(&format!("{round} of {at}"))
            })
            .collect();
        let wins: Vec<_> = thread::scope(|scope| {
            // The third writer is a process unknown to the host.
            let foreign =
                scope.spawn(|| served.run(&["update-ref", "refs/heads/main", &local, &base]).status.success());
            let pushes: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| client.run(&["push", "--quiet", "--force-with-lease", "origin", "main"])))
                .collect();
            let outcomes = pushes.into_iter().map(|push| push.join().unwrap().status.success());
            outcomes.chain([foreign.join().unwrap()]).collect()
        });
        // In the first round, the external process sets the branch to its current commit, which changes nothing.
        let found = served.id("main");
        let candidates = [&ids[0], &ids[1], &local];
        let winners: Vec<_> = candidates.iter().zip(&wins).filter(|(_, won)| **won).map(|(id, _)| *id).collect();
        let moved: Vec<_> = winners.iter().filter(|id| **id != &base).collect();
        assert!(moved.len() <= 1, "round {round}: {wins:?}");
        assert_eq!(&found, moved.first().map_or(&base, |id| **id), "round {round}: {wins:?}");
        assert!(!winners.is_empty(), "round {round}: at least one writer must succeed");
    }
    served.fsck();
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn an_atomic_push_with_one_bad_reference_changes_nothing() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    work.commit("second");
    let before = served.references();
    for bad in ["refs/heads/main/below", "refs/gitcd/metadata/main", "refs/for/main"] {
        let bad = format!("main:{bad}");
        let complaint = work.fails(&["push", "--atomic", "origin", "main:refs/heads/a", &bad, "main:refs/heads/z"]);
        assert!(complaint.contains("atomic push failed"), "{complaint}");
        assert_eq!(served.references(), before);
    }
    let complaint = work.fails(&["push", "origin", "main:refs/heads/a", "main:refs/heads/main/below"]);
    assert!(complaint.contains("main/below (cannot be created while refs/heads/main exists)"), "{complaint}");
    assert_eq!(served.id("a"), work.id("main"), "without --atomic, each reference is updated by itself");
    work.git(&["push", "--quiet", "--atomic", "origin", "main", "main:refs/heads/z", ":a"]);
    assert_eq!(served.references().lines().count(), 2);
    served.fsck();
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn large_pushes_come_in_portions() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let noise = super::noise(3 << 20);
    std::fs::write(work.path().join("noise"), noise).unwrap();
    work.git(&["add", "noise"]);
    work.git(&["commit", "--quiet", "--message=noise"]);
    std::fs::write(work.path().join("noise"), vec![7; 1 << 20]).unwrap();
    work.git(&["commit", "--all", "--quiet", "--message=less"]);
    work.git(&["-c", "http.postBuffer=65536", "push", "--quiet", "origin", "main"]);
    host.repository("a.git").fsck();
    assert_eq!(host.repository("a.git").id("main"), work.id("main"));
}

#[test]
fn what_is_pushed_survives_a_kill_and_the_host_ends_in_peace() {
    let mut host = Host::start(&[]);
    let work = host.work("work");
    host.kill();
    host.restart();
    let served = host.repository("a.git");
    assert_eq!(served.id("main"), work.id("main"));
    served.fsck();
    host.terminate();
    let log = host.log();
    assert!(log.contains("stopped"), "{log}");
    eventually("temporary files to be removed", || host.leftovers().is_empty().then_some(()));
}
