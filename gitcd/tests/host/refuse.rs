//! Refused pushes leave no trace.

use std::io::Write;
use std::path::PathBuf;

use super::eventually;
use super::http::{self, ZERO};
use super::process::Host;

const PATH: &str = "/a.git/git-receive-pack";
const NOTHING: Vec<PathBuf> = Vec::new();

#[test]
fn a_push_with_a_missing_object_is_refused() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let before = served.references();
    let id = work.commit("second");
    let (tree, blob) = (work.id("HEAD^{tree}"), work.id("HEAD:second"));
    for (what, objects) in
        [("nothing", vec![]), ("no tree", vec![&id]), ("no blob", vec![&id, &tree]), ("no commit", vec![&tree, &blob])]
    {
        let list: Vec<_> = objects.iter().map(|id| format!("{id}\n")).collect();
        let pack = work.feed(&["pack-objects", "--stdout", "-q"], &list.concat());
        for name in ["refs/heads/new", "refs/tags/new"] {
            let body = http::push(&[(ZERO, &id, name)], "report-status", &pack);
            let answer = http::post(host.address(), PATH, &[], &body);
            assert_eq!(answer.status, 200, "{what}");
            assert!(answer.text().contains(&format!("ng {name} ")), "{what}: {}", answer.text());
        }
    }
    let pack = work.feed(&["pack-objects", "--stdout", "-q"], &format!("{id}\n{tree}\n{blob}\n"));
    let body = http::push(&[(ZERO, &tree, "refs/heads/new")], "report-status", &pack);
    let text = http::post(host.address(), PATH, &[], &body).text();
    assert!(text.contains("ng refs/heads/new a branch must be a commit"), "{text}");
    assert_eq!(served.references(), before);
    assert_eq!(served.git(&["count-objects", "-v"]).lines().find(|line| line.starts_with("packs:")), Some("packs: 1"));
    let nowhere = "1111111111111111111111111111111111111111";
    let all =
        [(ZERO, &*id, "refs/heads/new"), (ZERO, nowhere, "refs/heads/nowhere"), (ZERO, &*tree, "refs/heads/tree")];
    let text = http::post(host.address(), PATH, &[], &http::push(&all, "report-status", &pack)).text();
    for line in ["unpack ok", "ok refs/heads/new", "ng refs/heads/nowhere missing", "ng refs/heads/tree a branch must"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    served.fsck();
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn what_is_here_by_chance_does_not_make_a_push_complete() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let before = served.references();
    let lost = work.commit("lost");
    let id = work.commit("third");
    // The middle commit without its tree, as an interrupted `git prune` may leave it.
    let content = work.git(&["cat-file", "commit", &lost]) + "\n";
    let written = served.feed(&["hash-object", "-t", "commit", "-w", "--stdin"], &content);
    assert_eq!(String::from_utf8_lossy(&written).trim(), lost);
    let objects = format!("{id}\n{}\n{}\n{}\n", work.id("HEAD^{tree}"), work.id("HEAD:third"), work.id("HEAD:lost"));
    let pack = work.feed(&["pack-objects", "--stdout", "-q"], &objects);
    let commands = [(ZERO, &*id, "refs/heads/new"), (ZERO, &*work.id("origin/main"), "refs/heads/good")];
    let text = http::post(host.address(), PATH, &[], &http::push(&commands, "report-status", &pack)).text();
    assert!(text.contains("unpack ok") && text.contains("ng refs/heads/new missing necessary objects"), "{text}");
    assert!(text.contains("ok refs/heads/good"), "{text}");
    let body = http::push(&commands[..1], "report-status", &pack);
    assert!(http::post(host.address(), PATH, &[], &body).text().contains("ng refs/heads/new missing"));
    assert_eq!(served.references().lines().count(), before.lines().count() + 1);
    // With the tree in the pack, the push is complete.
    work.git(&["push", "--quiet", "origin", "main"]);
    served.fsck();
    assert_eq!(host.leftovers(), NOTHING);
}

#[test]
fn damaged_and_oversized_packs_are_refused_with_the_reason() {
    let host = Host::start(&["--max-pack-bytes=100000"]);
    let work = host.work("work");
    let id = work.commit("second");
    let objects = format!("{id}\n{}\n{}\n", work.id("HEAD^{tree}"), work.id("HEAD:second"));
    let mut pack = work.feed(&["pack-objects", "--stdout", "-q"], &objects);
    let middle = pack.len() / 2;
    pack[middle] ^= 0x55;
    for pack in [&pack[..], &pack[..middle], b"", b"PACK", b"rubbish, and no end of it"] {
        let body = http::push(&[(ZERO, &id, "refs/heads/new")], "report-status", pack);
        let text = http::post(host.address(), PATH, &[], &body).text();
        assert!(text.contains("ng refs/heads/new unpacker error") && !text.contains("unpack ok"), "{text}");
        assert!(!text.contains(host.root().to_str().unwrap()), "{text}");
    }
    let noise = super::noise(300_000);
    std::fs::write(work.path().join("noise"), noise).unwrap();
    work.git(&["add", "noise"]);
    work.commit("large");
    let complaint = work.fails(&["push", "origin", "main"]);
    assert!(complaint.contains("maximum allowed size") || complaint.contains("larger"), "{complaint}");
    assert_eq!(host.leftovers(), NOTHING);
    host.repository("a.git").fsck();
}

#[test]
fn rubbish_is_answered_as_such() {
    let host = Host::start(&[]);
    host.work("work");
    let id = host.repository("a.git").id("main");
    let before = host.repository("a.git").references();
    for body in [&b"rubbish"[..], b"", b"00", b"0000trailing", b"0032"] {
        let answer = http::post(host.address(), PATH, &[], body);
        let is_probe = body.starts_with(b"0000");
        assert_eq!(answer.status, if is_probe { 200 } else { 400 }, "{body:?}: {}", answer.text());
    }
    for name in ["HEAD", "main", "config", "objects/x", "refs"] {
        let body = http::push(&[(ZERO, &id, name)], "report-status", b"");
        let text = http::post(host.address(), PATH, &[], &body).text();
        assert!(text.contains(&format!("ng {name} only references below refs/ can be pushed")), "{name}: {text}");
    }
    for name in ["refs/heads/../x", "refs/heads/a..b", "refs/heads/x.lock", "refs/heads/", "refs/heads/ "] {
        let body = http::push(&[(ZERO, &id, name)], "report-status", b"");
        let text = http::post(host.address(), PATH, &[], &body).text();
        assert!(text.contains(&format!("ng {name} it is not refs/<kind>/<name>")), "{name}: {text}");
    }
    let twice = [(&*id, ZERO, "refs/heads/b"), (ZERO, &*id, "refs/heads/b")];
    let text = http::post(host.address(), PATH, &[], &http::push(&twice, "report-status", b"")).text();
    assert!(text.contains("ng refs/heads/b it appears more than once"), "{text}");
    let head = http::push(&[(&id, ZERO, "refs/heads/main")], "report-status", b"");
    let text = http::post(host.address(), PATH, &[], &head).text();
    assert!(text.contains("ng refs/heads/main the branch that HEAD names"), "{text}");
    assert_eq!(host.repository("a.git").references(), before);
    assert_eq!(host.leftovers(), NOTHING);
}

/// Starts a push and waits until the host has begun to unpack it.
fn half_a_push(host: &Host) -> std::net::TcpStream {
    let id = "1111111111111111111111111111111111111111";
    let body = http::push(&[(ZERO, id, "refs/heads/new")], "report-status", b"PACK\0\0\0\x02\0\0\0\x09");
    let kind = "Content-Type: application/x-git-receive-pack-request";
    let mut stream = http::begin(host.address(), "POST", PATH, &[kind], 1 << 20);
    stream.write_all(&body).expect("the host reads its input");
    eventually("a quarantine", || (!host.leftovers().is_empty()).then_some(()));
    stream
}

#[test]
fn an_aborted_push_leaves_nothing() {
    let host = Host::start(&[]);
    host.work("work");
    let before = host.repository("a.git").references();
    drop(half_a_push(&host));
    eventually("the end of the quarantine", || host.leftovers().is_empty().then_some(()));
    assert_eq!(host.repository("a.git").references(), before);
    host.repository("a.git").fsck();
}

#[test]
fn what_a_crash_leaves_is_removed_at_the_next_start_and_what_lives_stays() {
    let mut host = Host::start(&[]);
    host.work("work");
    let _client = half_a_push(&host);
    host.kill();
    let left = host.leftovers();
    assert!(!left.is_empty());
    // Locks of other programs must not be removed.
    let foreign = host.root().join("a.git/refs/heads/main.lock");
    std::fs::write(&foreign, "").unwrap();
    host.restart();
    eventually("the orphaned git to exit", || (host.leftovers().len() == 1).then_some(()));
    assert_eq!(host.leftovers(), std::slice::from_ref(&foreign));
    std::fs::remove_file(foreign).unwrap();

    let _client = half_a_push(&host);
    let alive = host.leftovers();
    let root = format!("--root={}", host.root().display());
    let _second = Host::prepare(&[&root]).running();
    assert_eq!(host.leftovers(), alive, "another host must not disturb a push");
}

/// Creates a commit whose only file is nested `names` directories deep.
fn nested(repository: &std::path::Path, names: usize) -> String {
    let repository = git2::Repository::open(repository).expect("the folder is a repository");
    let mut at = repository.blob(b"x").expect("the repository is writable");
    for depth in 0..names {
        let mut builder = repository.treebuilder(None).expect("a tree builder needs no input");
        let mode = if depth == 0 { 0o100_644 } else { 0o040_000 };
        builder.insert("a", at, mode).expect("the entry is valid");
        at = builder.write().expect("the repository is writable");
    }
    let tree = repository.find_tree(at).expect("the tree exists");
    let author = git2::Signature::new("a", "a@b", &git2::Time::new(1000, 0)).expect("the signature is valid");
    repository.commit(None, &author, &author, "deep", &tree, &[]).expect("the repository is writable").to_string()
}

#[test]
fn directories_below_one_another_do_not_end_the_host() {
    let host = Host::start(&[]);
    let work = host.work("work");
    for names in [100, 3000] {
        let commit = nested(work.path(), names);
        let pushed = work.run(&["push", "--quiet", "origin", &format!("{commit}:refs/heads/deep-{names}")]);
        assert!(pushed.status.success() || names > 2048, "{names}: {pushed:?}");
    }
    let after = work.commit("after");
    work.git(&["push", "--quiet", "origin", "main"]);
    let served = host.repository("a.git");
    assert_eq!(served.id("main"), after);
    // Followers fetch it with Git.
    let clone = host.clone("clone");
    clone.git(&["fetch", "--quiet", "origin", "deep-100"]);
}

#[test]
fn another_name_of_a_branch_is_not_pushed_to() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let served = host.repository("a.git");
    served.git(&["symbolic-ref", "refs/heads/master", "refs/heads/main"]);
    let before = served.id("main");
    let next = work.commit("second");
    for push in ["main:master", "+main:master", ":master"] {
        let said = work.fails(&["push", "origin", push]);
        assert!(said.contains("symbolic reference to refs/heads/main"), "{push}: {said}");
        assert_eq!(served.id("main"), before, "{push}");
    }
    work.git(&["push", "--quiet", "origin", "main"]);
    assert_eq!(served.id("master"), next);
}
