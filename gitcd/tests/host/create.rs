//! Repositories created by a push.

use std::path::PathBuf;
use std::thread;

use super::process::Host;

const NOTHING: Vec<PathBuf> = Vec::new();

#[test]
fn the_first_push_makes_the_repository() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    work.git(&["branch", "topic"]);
    let url = host.url("team/new");
    work.git(&["push", "--quiet", &url, "topic", "main"]);
    let made = host.repository("team/new.git");
    assert_eq!(made.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(made.references().lines().count(), 2);
    made.fsck();
    let log = host.log();
    let place = format!("repository={}", host.root().join("team/new.git").display());
    assert!(log.contains(&place) && !log.contains(".gitcd-new-"), "{log}");
    let only = host.url("only.git");
    work.git(&["push", "--quiet", &only, "topic"]);
    assert_eq!(host.repository("only.git").git(&["symbolic-ref", "HEAD"]), "refs/heads/topic");
    work.commit("second");
    work.git(&["push", "--quiet", &url, "main"]);
    assert_eq!(made.id("main"), work.id("main"));
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn a_push_that_fails_makes_nothing() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    let url = host.url("team/new");
    work.fails(&["push", &url, "main:refs/for/main"]);
    work.fails(&["push", &url, "main:refs/gitcd/x"]);
    work.fails(&["fetch", &url]);
    assert!(!host.root().join("team").exists());
    assert_eq!(host.leftovers(), NOTHING);
    let closed = Host::start(&[]);
    let complaint = work.fails(&["push", &closed.url("new"), "main"]);
    assert!(complaint.contains("403"), "{complaint}");
    assert!(!closed.root().join("new.git").exists());
}

#[test]
fn what_may_be_made_is_empty_until_then_and_there_for_nobody_else() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    let url = host.url("team/new");
    for version in ["0", "1", "2"] {
        assert_eq!(work.git(&["-c", &format!("protocol.version={version}"), "ls-remote", &url]), "");
    }
    let clone = host.root().with_file_name("clone");
    work.git(&["clone", "--quiet", &url, &clone.display().to_string()]);
    assert!(!host.root().join("team").exists());
    assert_eq!(host.leftovers(), NOTHING);
    work.git(&["-C", &clone.display().to_string(), "commit", "--quiet", "--allow-empty", "-m", "first"]);
    work.git(&["-C", &clone.display().to_string(), "push", "--quiet", "origin", "HEAD:main"]);
    assert_eq!(host.repository("team/new.git").references().lines().count(), 1);

    let readable = Host::start(&["--create-on-push", "--anonymous=read"]);
    let complaint = work.fails(&["ls-remote", &readable.url("new")]);
    assert!(complaint.contains("403"), "{complaint}");
    let plain = Host::start(&[]);
    let complaint = work.fails(&["ls-remote", &plain.url("new")]);
    assert!(complaint.contains("403"), "{complaint}");
}

#[test]
fn two_first_pushes_make_one_repository() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    for round in 0..4 {
        let url = host.url(&format!("new{round}"));
        let wins = thread::scope(|scope| {
            let push = |branch: &str| work.run(&["push", "--quiet", &url, &format!("main:{branch}")]).status.success();
            let pushes = ["refs/heads/one", "refs/heads/two"].map(|branch| scope.spawn(move || push(branch)));
            pushes.map(|push| push.join().unwrap())
        });
        let made = host.repository(&format!("new{round}.git"));
        let expected = wins.iter().filter(|won| **won).count();
        assert_eq!(made.references().lines().count(), expected, "round {round}: {wins:?}");
        assert!(expected > 0, "round {round}");
        made.fsck();
    }
    assert_eq!(host.leftovers(), NOTHING);
}
