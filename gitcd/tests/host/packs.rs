//! The number of packs stays small, however many are pushed.

use std::path::PathBuf;
use std::process::Command;

use super::eventually;
use super::process::Host;

#[test]
fn many_pushes_do_not_leave_many_packs() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    served.git(&["config", "gc.autoPackLimit", "12"]);
    // A pack with a `.keep` file must stay as it is.
    served.git(&["repack", "-a", "-d", "-q"]);
    let kept = packs(served.path()).pop().unwrap();
    std::fs::write(kept.with_extension("keep"), "mine").unwrap();
    let mut last = String::new();
    for number in 0..40 {
        last = work.commit(&format!("commit {number}"));
        work.git(&["push", "--quiet", "origin", "main"]);
    }
    eventually("small packs to be repacked", || (packs(served.path()).len() <= 13).then_some(()));
    assert!(kept.exists());
    served.fsck();
    assert_eq!(served.id("main"), last);
    assert_eq!(host.clone("again").id("HEAD"), last);
}

/// Concurrent pushes of the same commit bring the same pack, at any moment of a repack.
#[test]
fn what_is_pushed_twice_beside_joins_is_all_there() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    served.git(&["config", "gc.autoPackLimit", "11"]);
    let (mut joined, mut before) = (0, packs(served.path()).len());
    let mut last = String::new();
    for number in 0..60 {
        last = work.commit(&format!("commit {number}"));
        let pushes = ["one", "other", "third"].map(|branch| {
            let mut push = Command::new("git");
            push.arg("-C").arg(work.path()).args(["push", "--quiet", "origin", &format!("main:refs/heads/{branch}")]);
            push.spawn().expect("git is installed")
        });
        for mut push in pushes {
            assert!(push.wait().expect("git exits").success());
        }
        // Each commit adds at least one pack, so no increase means a repack.
        let there = packs(served.path()).len();
        joined += u32::from(there <= before);
        before = there;
    }
    assert!(joined > 2, "the host repacked only {joined} times");
    for branch in ["one", "other", "third"] {
        assert_eq!(served.id(branch), last);
    }
    served.fsck();
    assert_eq!(served.git(&["rev-list", "--count", "one"]), "61");
}

fn packs(repository: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository.join("objects/pack")).expect("the folder is readable");
    let paths = entries.map(|entry| entry.expect("the entry is readable").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "pack")).collect()
}
