//! Names of references and repositories that would make one repository a part of another, or mislead Git.

use super::git::Repository;
use super::http::{self, ZERO};
use super::process::Host;

const PATH: &str = "/a.git/git-receive-pack";

/// A pack without objects.
const NOTHING: &[u8] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";

/// Pushes an existing commit to new references; returns the report.
fn create(host: &Host, id: &str, names: &[&str], capabilities: &str) -> String {
    let commands: Vec<_> = names.iter().map(|name| (ZERO, id, *name)).collect();
    let answer = http::post(host.address(), PATH, &[], &http::push(&commands, capabilities, NOTHING));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

#[test]
fn the_references_of_a_repository_never_become_a_repository() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let (id, before) = (work.id("main"), served.references());
    for name in ["refs/HEAD", "refs/objects", "refs/refs", "refs/heads/HEAD"] {
        let text = create(&host, &id, &[name], "report-status");
        assert!(text.contains(&format!("ng {name} it is not refs/<kind>/<name>")), "{name}: {text}");
    }
    assert_eq!(served.references(), before);
    // Each of these is a reference like any other, but together with their folder they look like a repository.
    for parts in [["refs/objects/x", "refs/refs/y", "refs/x/HEAD"], ["refs/x/objects/x", "refs/x/refs/y", "refs/y/z"]] {
        let text = create(&host, &id, &parts, "report-status");
        assert!(parts.iter().all(|name| text.contains(&format!("ok {name}\n"))), "{text}");
    }
    let inner = host.root().join("a.git/refs/x");
    assert!(["HEAD", "objects", "refs"].iter().all(|part| inner.join(part).exists()), "it looks like a repository");
    // A program on this machine can also write what no client may push.
    std::fs::write(host.root().join("a.git/refs/HEAD"), format!("{id}\n")).unwrap();
    for name in ["a.git/refs/x", "a.git/refs"] {
        for service in ["git-upload-pack", "git-receive-pack"] {
            let answer = http::get(host.address(), &format!("/{name}/info/refs?service={service}"), &[]);
            assert_eq!(answer.status, 403, "{name} {service}: {}", answer.text());
        }
        let said = work.fails(&["push", &host.url(name), "main"]);
        assert!(said.contains("403"), "{name}: {said}");
    }
    // What an earlier version has accepted can be deleted.
    let body = http::push(&[(&id, ZERO, "refs/HEAD")], "report-status", b"");
    let text = http::post(host.address(), PATH, &[], &body).text();
    assert!(text.contains("ok refs/HEAD\n"), "{text}");
    served.fsck();
    let clone = Repository::clone(&host.url("a.git"), &host.folder().join("mirror"), &["--mirror"]);
    assert_eq!(clone.references(), served.references());
}

#[test]
fn names_that_git_would_not_create_are_refused_before_anything_is_written() {
    let host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let (id, before) = (work.id("main"), served.references());
    let (long, longer) = (format!("refs/heads/{}", "a".repeat(251)), format!("refs/heads/{}b", "a/".repeat(1000)));
    for name in [
        "refs/heads/a..b",
        "refs/heads/a.lock/b",
        "refs/heads/main.lock",
        "refs/heads/a@{0}",
        "refs/heads/a\x7f",
        "refs/heads/\x1b[2J",
        "refs/heads/.a",
        "refs/heads/-a",
        "refs/tags/--upload-pack=x",
        "refs/stash",
        &long,
        &longer,
    ] {
        let text = create(&host, &id, &[name], "report-status");
        assert!(text.contains(&format!("ng {name} it is not refs/<kind>/<name>")), "{name:?}: {text}");
        // A first push creates neither a repository nor folders for it.
        let body = http::push(&[(ZERO, &id, name)], "report-status", b"");
        let answer = http::post(host.address(), "/team/new.git/git-receive-pack", &[], &body);
        assert!(answer.text().contains(&format!("ng {name} ")), "{name:?}: {}", answer.text());
        assert!(!host.root().join("team").exists(), "{name:?}");
    }
    let endless = format!("refs/heads/{}", "a".repeat(60_000));
    let answer = http::post(host.address(), PATH, &[], &http::push(&[(ZERO, &id, &endless)], "report-status", b""));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(served.references(), before);
    assert!(host.leftovers().is_empty());
    served.fsck();
}

#[test]
fn of_names_that_exclude_each_other_the_first_one_stays() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let id = work.id("main");
    let text = create(&host, &id, &["refs/heads/a", "refs/heads/a/b"], "report-status atomic");
    assert!(text.contains("ng refs/heads/a ") && text.contains("ng refs/heads/a/b "), "{text}");
    let text = create(&host, &id, &["refs/heads/a", "refs/heads/a/b"], "report-status");
    assert!(text.contains("ok refs/heads/a\n") && text.contains("ng refs/heads/a/b cannot be created"), "{text}");
    let text = create(&host, &id, &["refs/heads/main/x", "refs/heads/A"], "report-status");
    assert!(text.contains("ng refs/heads/main/x cannot be created") && text.contains("ok refs/heads/A\n"), "{text}");
    assert!(host.leftovers().is_empty());
    host.repository("a.git").fsck();
}

#[test]
fn replacements_of_objects_need_the_right_of_owners() {
    for (access, is_allowed) in [("write", false), ("own", true)] {
        let host = Host::start(&[&format!("--anonymous={access}")]);
        let work = host.work("work");
        let (first, second) = (work.id("main"), work.commit("second"));
        work.git(&["push", "--quiet", "origin", "main"]);
        let name = format!("refs/replace/{first}");
        let text = create(&host, &second, &[&name], "report-status");
        let expected = if is_allowed { "ok" } else { "ng" };
        assert!(text.contains(&format!("{expected} {name}")), "{access}: {text}");
        let hint = "only who owns this repository may push replacements of objects";
        assert_eq!(text.contains(hint), !is_allowed, "{text}");
        assert_eq!(host.repository("a.git").references().contains("refs/replace/"), is_allowed);
    }
}

#[test]
fn tens_of_thousands_of_refused_names_are_answered_at_once() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let id = work.id("main");
    let names: Vec<_> = (0..60_000).map(|number| format!("refs/heads/{number}..")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for capabilities in ["report-status", "report-status atomic"] {
        let text = create(&host, &id, &names, capabilities);
        assert_eq!(text.matches("ng refs/heads/").count(), names.len());
    }
}
