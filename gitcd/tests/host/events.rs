//! The event stream of reference changes.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::http;
use super::process::Host;

/// A client of the event stream.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn new(host: &Host, headers: &[&str]) -> Self {
        let stream = http::begin(host.address(), "GET", "/a/refs/events", headers, 0);
        let mut follower = Self(BufReader::new(stream));
        let head: Vec<_> = std::iter::from_fn(|| follower.line().filter(|line| !line.is_empty())).collect();
        assert!(head[0].contains(" 200 "), "{head:?}");
        assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
        follower
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).expect("an event arrives before the timeout");
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads the next event and its data; `None` at the end of the stream.
    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let line = self.line()?;
            if let Some(kind) = line.strip_prefix("event: ") {
                let data = self.line()?;
                let data = serde_json::from_str(data.strip_prefix("data: ").expect("a data line follows"))
                    .expect("event data is JSON");
                return Some((kind.to_owned(), data));
            }
        }
    }

    fn change(&mut self, reference: &str, old: Option<&str>, new: Option<&str>) {
        let expected = json!({ "reference": reference, "old": old, "new": new });
        assert_eq!(self.next(), Some(("change".to_owned(), expected)));
    }
}

#[test]
fn own_and_foreign_changes_are_sent_to_everybody_who_follows() {
    let mut host = Host::start(&[]);
    let work = host.work("work");
    let first = work.id("HEAD");
    let mut followers = [Follower::new(&host, &[]), Follower::new(&host, &[])];
    for follower in &mut followers {
        let (kind, data) = follower.next().unwrap();
        assert_eq!((kind.as_str(), data), ("snapshot", json!({ "references": { "refs/heads/main": first } })));
    }
    let second = work.commit("second");
    work.git(&["push", "--quiet", "origin", "main"]);
    let served = host.repository("a.git");
    for follower in &mut followers {
        follower.change("refs/heads/main", Some(&first), Some(&second));
    }
    served.git(&["update-ref", "refs/heads/deep/er", &first]);
    for follower in &mut followers {
        follower.change("refs/heads/deep/er", None, Some(&first));
    }
    // Packing references changes none, so the next event is the deletion.
    served.git(&["pack-refs", "--all"]);
    served.git(&["update-ref", "-d", "refs/heads/deep/er"]);
    for follower in &mut followers {
        follower.change("refs/heads/deep/er", Some(&first), None);
    }
    host.terminate();
    for follower in &mut followers {
        assert_eq!(follower.next(), None, "the host must stop without waiting for its followers");
    }
}

#[test]
fn who_loses_the_right_hears_no_more() {
    let host = Host::prepare(&[]);
    super::git::Repository::init_bare(&host.root().join("a.git"));
    let tokens = host.folder().join("tokens.yaml");
    let write = |access: &str| {
        let entry = |token: &str, access: &str| {
            format!("- {{user: {token}, token: {token}, rights: [{{repository: a, access: {access}}}]}}\n")
        };
        let text =
            if access.is_empty() { entry("push", "write") } else { entry("push", "write") + &entry("look", access) };
        std::fs::write(&tokens, text).unwrap();
    };
    write("read");
    let host = host.argument(format!("--tokens={}", tokens.display())).running();
    let mut follower = Follower::new(&host, &["Authorization: Bearer look"]);
    assert_eq!(follower.next().unwrap().0, "snapshot");
    let url = host.url("a").replace("http://", "http://any:push@");
    let work = super::git::Repository::clone(&url, &host.folder().join("work"), &[]);
    let first = work.commit("first");
    work.git(&["push", "--quiet", "origin", "main"]);
    follower.change("refs/heads/main", None, Some(&first));
    write("");
    work.commit("second");
    work.git(&["push", "--quiet", "origin", "main"]);
    assert_eq!(follower.next(), None);
    let refused = http::get(host.address(), "/a/refs/events", &["Authorization: Bearer look"]);
    assert_eq!(refused.status, 401);
}

#[test]
fn who_is_slow_gets_a_new_snapshot_instead_of_a_thousand_changes() {
    let host = Host::start(&["--max-followers=1"]);
    let work = host.work("work");
    let id = work.id("HEAD");
    let mut follower = Follower::new(&host, &[]);
    assert_eq!(follower.next().unwrap().0, "snapshot");
    let busy = http::get(host.address(), "/a/refs/events", &[]);
    assert_eq!(busy.status, 503);
    let names: Vec<_> = (0..1500).map(|at| format!("create refs/many/{at} {id}\n")).collect();
    host.repository("a.git").feed(&["update-ref", "--stdin"], &names.concat());
    // Git writes the references one by one, so changes and snapshots must add up.
    let mut known = std::collections::BTreeSet::new();
    while known.len() < 1501 {
        let (kind, data) = follower.next().unwrap();
        match kind.as_str() {
            "snapshot" => known = data["references"].as_object().unwrap().keys().cloned().collect(),
            _ => assert!(known.insert(data["reference"].as_str().unwrap().to_owned()), "{data}"),
        }
        known.insert("refs/heads/main".to_owned());
    }
}
