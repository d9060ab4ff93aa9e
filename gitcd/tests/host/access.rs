//! Access rights.

use super::git::Repository;
use super::http;
use super::process::Host;

const TOKENS: &str = "
- user: reader
  token: read-me
  rights: [{repository: '*', access: read}]
- user: writer
  # write-me
  token-sha256: ad72d3cf9ba2fde3ac24a26dc09d3ed7d0b4d3ea1cd9e98e3ffe3c5fb7d5ba51
  rights: [{repository: a, access: write}]
- user: owner
  token: own-me
  rights: [{repository: '**', access: own}]
";

fn host(arguments: &[&str]) -> Host {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest("write-me");
    let digest: Vec<_> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let tokens = TOKENS.replace("ad72d3cf9ba2fde3ac24a26dc09d3ed7d0b4d3ea1cd9e98e3ffe3c5fb7d5ba51", &digest.concat());
    let host = Host::prepare(arguments);
    let path = host.folder().join("tokens.yaml");
    std::fs::write(&path, tokens).expect("the temporary folder is writable");
    Repository::init_bare(&host.root().join("a.git"));
    Repository::init_bare(&host.root().join("team/b.git"));
    host.argument(format!("--tokens={}", path.display())).running()
}

/// Returns the HTTP status of the reference discovery for a service of a repository.
fn status(host: &Host, name: &str, service: &str, authorization: &str) -> u16 {
    let path = format!("/{name}/info/refs?service={service}");
    let header = format!("Authorization: {authorization}");
    let headers = if authorization.is_empty() { vec![] } else { vec![header.as_str()] };
    http::get(host.address(), &path, &headers).status
}

const FETCH: &str = "git-upload-pack";
const PUSH: &str = "git-receive-pack";

#[test]
fn rights_decide_and_names_are_not_shown() {
    let host = host(&[]);
    for (authorization, name, service, expected) in [
        ("", "a", FETCH, 401),
        ("", "none", FETCH, 401),
        ("Bearer wrong", "a", FETCH, 401),
        ("Basic cmVhZGVyOndyb25n", "a", FETCH, 401),
        ("Basic !", "a", FETCH, 401),
        ("Bearer read-me", "a", FETCH, 200),
        ("Basic cmVhZGVyOnJlYWQtbWU=", "a", FETCH, 200),
        ("Basic YW55Ym9keTpyZWFkLW1l", "a.git", FETCH, 200),
        ("Bearer read-me", "a", PUSH, 403),
        ("Bearer read-me", "none", FETCH, 403),
        ("Bearer read-me", "team/b", FETCH, 403),
        ("Bearer read-me", ".hidden", FETCH, 403),
        ("Bearer write-me", "a", PUSH, 200),
        ("Bearer write-me", "a", FETCH, 200),
        ("Bearer write-me", "team/b", FETCH, 403),
        ("Bearer own-me", "team/b", PUSH, 200),
        ("Bearer own-me", "team/none", PUSH, 403),
    ] {
        assert_eq!(status(&host, name, service, authorization), expected, "{authorization} {name} {service}");
    }
    let answer = |name: &str| {
        http::get(host.address(), &format!("/{name}/info/refs?service={FETCH}"), &["Authorization: Bearer read-me"])
    };
    let strip = |head: &str| head.lines().filter(|line| !line.starts_with("date")).collect::<Vec<_>>().join("\n");
    let (one, other) = (answer("team/b"), answer("none"));
    assert_eq!((strip(&one.head), one.body), (strip(&other.head), other.body));
    let refused = http::get(host.address(), &format!("/a/info/refs?service={FETCH}"), &[]);
    assert!(refused.head.to_lowercase().contains("www-authenticate: basic"), "{}", refused.head);
    let log = host.log();
    assert!(!["read-me", "write-me", "own-me", "wrong"].iter().any(|token| log.contains(token)), "{log}");
}

#[test]
fn who_is_not_let_in_is_logged_and_what_was_shown_is_not() {
    let host = host(&[]);
    let line = |words: &str| {
        super::eventually(words, || host.log().lines().find(|line| line.contains(words)).map(ToOwned::to_owned))
    };
    for (authorization, name, words, level) in [
        ("", "a", "asked for a token (401)", "INFO"),
        ("Bearer guess", "team/b", "unknown token", "WARN"),
        ("Bearer read-me", "none\u{9b}", "refused (403)", "WARN"),
    ] {
        status(&host, name, FETCH, authorization);
        let line = line(words);
        let path = format!("path=\"/{}/info/refs\"", name.escape_debug());
        assert!(line.contains(level) && line.contains("address=127.0.0.1:") && line.contains(&path), "{line}");
    }
    assert!(line("refused (403)").contains("user=\"reader\""));
    let log = host.log();
    assert!(!["guess", "read-me", "service="].iter().any(|secret| log.contains(secret)), "{log}");
}

#[test]
fn metadata_is_for_owners() {
    let host = host(&[]);
    let url = |user: &str| host.url("a.git").replace("http://", &format!("http://{user}@"));
    let work = Repository::clone(&url("any:write-me"), &host.folder().join("work"), &[]);
    work.commit("first");
    work.git(&["push", "--quiet", "origin", "main"]);
    let complaint = work.fails(&["push", "origin", "main:refs/gitcd/metadata/main"]);
    assert!(complaint.contains("only who owns this repository"), "{complaint}");
    assert!(complaint.contains("`access: own`") && complaint.contains("--anonymous=own"), "{complaint}");
    work.git(&["push", "--quiet", &url("any:own-me"), "main:refs/gitcd/metadata/main"]);
    let listed = work.git(&["ls-remote", &url("any:read-me"), "refs/gitcd/*"]);
    assert!(listed.contains("refs/gitcd/metadata/main"), "readers can list it: {listed}");
    let complaint = work.fails(&["push", &url("any:read-me"), "main"]);
    assert!(complaint.contains("403"), "{complaint}");
}

#[test]
fn changed_tokens_count_at_once_and_unusable_ones_do_not() {
    let host = host(&[]);
    let path = host.folder().join("tokens.yaml");
    assert_eq!(status(&host, "a", FETCH, "Bearer read-me"), 200);
    std::fs::write(&path, "- {user: new, token: fresh, rights: [{repository: a, access: read}]}").unwrap();
    assert_eq!(status(&host, "a", FETCH, "Bearer read-me"), 401);
    assert_eq!(status(&host, "a", FETCH, "Bearer fresh"), 200);
    std::fs::write(&path, "nonsense: [").unwrap();
    assert_eq!(status(&host, "a", FETCH, "Bearer fresh"), 200);
    assert!(host.log().contains("the previous ones stay in effect"));
    std::fs::write(&path, "[]").unwrap();
    assert_eq!(status(&host, "a", FETCH, "Bearer fresh"), 401);
}

#[test]
fn everybody_may_do_what_is_said() {
    for (anonymous, fetch, push) in [("read", 200, 401), ("write", 200, 200), ("none", 401, 401)] {
        let host = host(&[&format!("--anonymous={anonymous}")]);
        assert_eq!((status(&host, "a", FETCH, ""), status(&host, "a", PUSH, "")), (fetch, push), "{anonymous}");
        assert_eq!(
            status(&host, "a", FETCH, "Bearer wrong"),
            401,
            "an invalid token is rejected, whatever anonymous access permits"
        );
    }
    let host = Host::start(&["--anonymous=read"]);
    assert_eq!((status(&host, "a", FETCH, ""), status(&host, "a", PUSH, "")), (200, 403));
    let host = Host::start(&[]);
    assert_eq!(status(&host, "a", PUSH, ""), 200);
    assert!(host.log().contains("every user of this machine can push"));
    let foreign = http::post(host.address(), "/a/git-receive-pack", &["Origin: http://example.org"], b"0000");
    assert_eq!(foreign.status, 403, "a web page cannot push");
}

#[test]
fn a_host_that_nobody_could_use_or_everybody_by_mistake_does_not_start() {
    for arguments in [&["--listen-urls=http://0.0.0.0:0"][..], &["--anonymous=none"]] {
        let words = Host::prepare(arguments).refused();
        assert!(words.contains("no user could access this host") && words.contains("--tokens"), "{words}");
    }
    let words = Host::prepare(&["--listen-urls=https://127.0.0.1:0"]).refused();
    assert!(words.contains("only where all URLs are http://"), "{words}");
    let words = Host::prepare(&["--tokens=/nonexistent"]).refused();
    assert!(words.contains("/nonexistent"), "{words}");
    let words = Host::prepare(&["--root=/nonexistent"]).refused();
    assert!(words.contains("/nonexistent") && words.contains("--root"), "{words}");
}

#[test]
fn names_do_not_lead_out_of_the_root() {
    let host = Host::start(&["--create-on-push"]);
    Repository::init_bare(&host.folder().join("outside.git"));
    std::os::unix::fs::symlink(host.folder(), host.root().join("up")).unwrap();
    for name in [
        "../outside",
        "..%2foutside",
        "%2e%2e/outside",
        "up/outside",
        "up/new",
        "a.git/new",
        "a/../../outside",
        "//a",
        ".x",
    ] {
        for service in [FETCH, PUSH] {
            assert_eq!(status(&host, name, service, ""), 403, "{name}");
        }
        let path = format!("/{name}/git-receive-pack");
        let id = "1111111111111111111111111111111111111111";
        let body = http::push(&[(http::ZERO, id, "refs/heads/main")], "report-status", b"");
        assert_eq!(http::post(host.address(), &path, &[], &body).status, 403, "{name}");
    }
    let outside = host.folder().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut outside: Vec<_> = outside.collect();
    outside.sort();
    assert_eq!(outside, ["log", "outside.git", "root"]);
}
