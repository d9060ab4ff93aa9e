//! Operators push to a served branch with stock Git.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::build::{get, put};
use crate::support::{Client, Kind, Launch, Server, eventually, free_port};

const KEY: &str = "/registry/configmaps/shop/prices";
const FILE: &str = "configmaps/shop/prices";

fn map(value: &str) -> String {
    let metadata = r#""metadata":{"name":"prices","namespace":"shop","uid":"u"}"#;
    format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{metadata},"data":{{"tea":"{value}","cup":"1"}}}}"#) + "\n"
}

struct Clone {
    folder: PathBuf,
    _temporary: TempDir,
}

impl Clone {
    fn git(&self, words: &[&str]) -> Output {
        let author = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.folder).args(author).args(words).env("GIT_TERMINAL_PROMPT", "0");
        command.output().expect("git is installed")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.git(words);
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn edit(&self, from: &str, to: &str) {
        let path = self.folder.join(FILE);
        let text = std::fs::read_to_string(&path).expect("the file is checked out");
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).expect("the work tree is writable");
        self.done(&["commit", "-qam", "by hand"]);
    }
}

async fn served() -> (Server, Client, String) {
    served_by(Launch::new(Kind::Gitcd)).await
}

async fn served_by(launch: Launch) -> (Server, Client, String) {
    let port = free_port();
    let server = launch.argument(format!("--host-listen-urls=http://127.0.0.1:{port}")).start().await;
    let client = server.client().await;
    client.put(put(KEY, &map("3"))).await.ok();
    (server, client, format!("http://127.0.0.1:{port}/repo.git"))
}

async fn committed(server: &Server, client: &Client) {
    let revision = client.range(get(KEY)).await.ok().header.expect("a response has a header").revision;
    let repository = server.repository();
    eventually("the commit", async || (repository.committed_revision() >= revision).then_some(())).await;
}

fn clone(url: &str) -> Clone {
    let temporary = tempfile::tempdir().expect("the temporary folder is writable");
    let folder = temporary.path().join("clone");
    let cloned =
        Command::new("git").args(["clone", "-q", "-b", "main", url]).arg(&folder).output().expect("git is installed");
    assert!(cloned.status.success(), "{}", String::from_utf8_lossy(&cloned.stderr));
    Clone { folder, _temporary: temporary }
}

async fn value(client: &Client) -> String {
    let found = client.range(get(KEY)).await.ok();
    String::from_utf8_lossy(&found.kvs[0].value).into_owned()
}

#[tokio::test]
async fn a_push_changes_a_key_at_once() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let clone = clone(&url);
    clone.edit(r#""tea": "3""#, r#""tea": "4""#);
    clone.done(&["push", "-q", "origin", "main"]);
    assert_eq!(value(&client).await, map("4"), "the key must be changed when the push returns");
    let head = clone.done(&["rev-parse", "HEAD"]);
    assert_eq!(server.repository().reference("refs/heads/main"), head.trim(), "the push must be a fast-forward");
    // The branch continues from there.
    client.put(put(KEY, &map("5"))).await.ok();
    committed(&server, &client).await;
    clone.done(&["pull", "-q", "--ff-only"]);
    assert!(std::fs::read_to_string(clone.folder.join(FILE)).unwrap().contains(r#""tea": "5""#));
    server.repository().fsck();
}

#[tokio::test]
async fn what_moved_on_is_refused_and_merged_where_that_is_asked_for() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let clone = clone(&url);
    client.put(put(KEY, &map("5"))).await.ok();
    committed(&server, &client).await;
    clone.edit(r#""cup": "1""#, r#""cup": "2""#);
    let refused = clone.git(&["push", "-q", "origin", "main"]);
    assert!(!refused.status.success());
    clone.done(&["push", "-q", "origin", "main:refs/for/main"]);
    assert_eq!(value(&client).await, map("5").replace(r#""cup":"1""#, r#""cup":"2""#));
    clone.done(&["pull", "-q", "--ff-only"]);
}

#[tokio::test]
async fn a_broken_file_is_refused_with_the_reason() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let clone = clone(&url);
    for (from, to, reason) in [
        (r#""tea": "3""#, r#""tea": "#, "neither a JSON nor a YAML object"),
        (r#""name": "prices""#, r#""name": "other""#, "metadata.name: is"),
    ] {
        clone.edit(from, to);
        let refused = clone.git(&["push", "origin", "main"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(FILE) && said.contains(reason), "{said}");
        assert_eq!(value(&client).await, map("3"));
        clone.done(&["reset", "-q", "--hard", "origin/main"]);
    }
    for reference in ["refs/gitcd/metadata/main", ":refs/heads/main"] {
        let target = if reference.starts_with(':') { reference.to_owned() } else { format!("main:{reference}") };
        let refused = clone.git(&["push", "-f", "origin", &target]);
        assert!(!refused.status.success(), "{reference}");
    }
    // Other references can be pushed freely.
    clone.done(&["push", "-q", "origin", "main:refs/heads/mine"]);
}

#[tokio::test]
async fn a_broken_file_is_refused_although_the_message_is_one_of_gitcd() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let clone = clone(&url);
    clone.edit(r#""tea": "3""#, r#""tea": 4"#);
    let said = |reference: &str| {
        let refused = clone.git(&["push", "origin", &format!("main:{reference}")]);
        assert!(!refused.status.success(), "{reference}: {refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    assert!(said("refs/for/main").contains("data.tea"));
    let head = clone.done(&["rev-parse", "--short=10", "HEAD~1"]);
    let merge = format!("merge {} and {}", head.trim(), head.trim());
    for message in [&["-m", "update configmaps/shop/prices", "-m", "Revision: 7"][..], &["-m", &merge]] {
        clone.done(&[&["commit", "-q", "--amend", "--reset-author"], message].concat());
        let said = said("refs/for/main");
        assert!(said.contains(FILE) && said.contains("data.tea"), "{message:?}: {said}");
    }
    assert_eq!(value(&client).await, map("3"));
    clone.done(&["reset", "-q", "--hard", "origin/main"]);
    clone.edit(r#""tea": "3""#, r#""tea": "4""#);
    clone.done(&["commit", "-q", "--amend", "--reset-author", "-m", "update a", "-m", "Revision: 7"]);
    clone.done(&["push", "-q", "origin", "main:refs/for/main"]);
    assert_eq!(value(&client).await, map("4"));
}

#[tokio::test]
async fn records_of_kube_apiserver_and_ephemeral_keys_are_refused_with_the_reason() {
    let launch = Launch::new(Kind::Gitcd).argument("--ephemeral-prefixes=/registry/events");
    let (server, client, url) = served_by(launch).await;
    let namespace = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","uid":"s"}}"#;
    client.put(put("/registry/namespaces/shop", &format!("{namespace}\n"))).await.ok();
    let range = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"AA=="}"#;
    client.put(put("/registry/ranges/servicenodeports", &format!("{range}\n"))).await.ok();
    committed(&server, &client).await;
    let clone = clone(&url);
    let write = |path: &str, text: &str| {
        let file = clone.folder.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        clone.done(&["add", "."]);
        clone.done(&["commit", "-qm", "by hand"]);
    };
    let is_refused = |path: &str, reason: &str| {
        let refused = clone.git(&["push", "origin", "main:refs/for/main"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(path) && said.contains(reason), "{path}: {said}");
        clone.done(&["reset", "-q", "--hard", "origin/main"]);
    };
    let own = "kube-apiserver keeps its own records in this folder";
    let ports = "ranges/servicenodeports";
    let text = std::fs::read_to_string(clone.folder.join(ports)).unwrap();
    write(ports, &text.replace("AA==", "AQ=="));
    is_refused(ports, own);
    clone.done(&["rm", "-q", ports]);
    clone.done(&["commit", "-qm", "by hand"]);
    is_refused(ports, own);
    write("masterleases/10.0.0.9", r#"{"kind":"Endpoints","apiVersion":"v1","metadata":{}}"#);
    is_refused("masterleases/10.0.0.9", own);
    write("events/shop/a", "x");
    is_refused("events/shop/a", "--ephemeral-prefixes");
    clone.edit(r#""tea": "3""#, r#""tea": "4""#);
    clone.done(&["push", "-q", "origin", "main:refs/for/main"]);
    assert_eq!(value(&client).await, map("4"));
    assert_eq!(client.range(get("/registry/ranges/servicenodeports")).await.ok().kvs.len(), 1);
}

/// Commits one more file, nested `names` directories deep.
fn nest(clone: &Clone, names: usize) {
    let repository = git2::Repository::open(&clone.folder).expect("the temporary folder is writable");
    let mut at = repository.blob(b"x").expect("the temporary folder is writable");
    for depth in 1..names {
        let mut builder = repository.treebuilder(None).expect("the temporary folder is writable");
        builder
            .insert("a", at, if depth == 1 { 0o100_644 } else { 0o040_000 })
            .expect("the temporary folder is writable");
        at = builder.write().expect("the temporary folder is writable");
    }
    let head = repository
        .head()
        .expect("the temporary folder is writable")
        .peel_to_commit()
        .expect("the temporary folder is writable");
    let mut root = repository
        .treebuilder(Some(&head.tree().expect("the temporary folder is writable")))
        .expect("the temporary folder is writable");
    root.insert("deep", at, 0o040_000).expect("the temporary folder is writable");
    let tree = repository
        .find_tree(root.write().expect("the temporary folder is writable"))
        .expect("the temporary folder is writable");
    let author = git2::Signature::now("p", "p@localhost").expect("the temporary folder is writable");
    repository
        .commit(Some("HEAD"), &author, &author, "deep", &tree, &[&head])
        .expect("the temporary folder is writable");
}

#[tokio::test]
async fn a_file_deeper_than_any_key_is_refused_and_does_no_harm() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let clone = clone(&url);
    for names in [1025, 1100, 3000] {
        nest(&clone, names);
        let refused = clone.git(&["push", "origin", "main"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{names}");
        assert!(said.contains("1023 directories") || names > 2048, "{names}: {said}");
        clone.done(&["reset", "-q", "--soft", "origin/main"]);
        client.put(put(KEY, &map(&names.to_string()))).await.ok();
        committed(&server, &client).await;
        clone.done(&["fetch", "-q"]);
        clone.done(&["reset", "-q", "--soft", "origin/main"]);
    }
    // The deepest valid key.
    nest(&clone, 1024);
    clone.done(&["push", "-q", "origin", "main"]);
    let key = format!("/registry/deep{}", "/a".repeat(1023));
    assert_eq!(client.range(get(&key)).await.ok().kvs.len(), 1);
}

/// Writes 200 times a second until `stop` is set; returns the number of writes.
async fn write_on(client: &Client, stop: Arc<AtomicBool>) -> usize {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut count = 0;
    // At least once per key, however fast the pushes are.
    while !stop.load(Ordering::Relaxed) || count <= 100 {
        ticks.tick().await;
        let key = format!("/registry/configmaps/shop/k{}", count % 100);
        client.put(put(&key, &format!("{count}"))).await.ok();
        count += 1;
    }
    count
}

/// Sets the flag on drop, also on a panic.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn people_clone_fetch_and_push_while_the_branch_is_written_to() {
    let (server, client, url) = served().await;
    committed(&server, &client).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Stop(stopped.clone());
    let person = tokio::task::spawn_blocking(move || {
        let _stop = stop;
        let clone = clone(&url);
        clone.done(&["fsck", "--full"]);
        for price in 4..7 {
            clone.done(&["pull", "-q", "--rebase"]);
            clone.edit(&format!(r#""tea": "{}""#, price - 1), &format!(r#""tea": "{price}""#));
            // The branch has moved on by now, so the push asks for a merge.
            clone.done(&["push", "-q", "origin", "main:refs/for/main"]);
        }
        // A plain push has to win the race at some time.
        clone.done(&["pull", "-q", "--rebase"]);
        clone.edit(r#""cup": "1""#, r#""cup": "2""#);
        let mut attempts = 1;
        while !clone.git(&["push", "-q", "origin", "main"]).status.success() {
            clone.done(&["pull", "-q", "--rebase"]);
            attempts += 1;
            assert!(attempts < 200, "every push was rejected");
        }
        clone
    });
    let (count, clone) = tokio::join!(write_on(&client, stopped), person);
    let clone = clone.expect("all git commands succeed");
    assert_eq!(value(&client).await, map("6").replace(r#""cup":"1""#, r#""cup":"2""#));
    let last = client.range(get(&format!("/registry/configmaps/shop/k{}", (count - 1) % 100))).await.ok();
    assert_eq!(last.kvs[0].value, format!("{}", count - 1).into_bytes());
    committed(&server, &client).await;
    clone.done(&["pull", "-q", "--rebase"]);
    clone.done(&["fsck", "--full"]);
    server.repository().fsck();
}

/// A branch and a clone that both have changed `tea`; the clone's commit is not pushed yet.
async fn edited_by_both() -> (Server, Client, Clone) {
    edited_by_both_at(Launch::new(Kind::Gitcd)).await
}

async fn edited_by_both_at(launch: Launch) -> (Server, Client, Clone) {
    let (server, client, url) = served_by(launch).await;
    committed(&server, &client).await;
    let clone = clone(&url);
    client.put(put(KEY, &map("9"))).await.ok();
    committed(&server, &client).await;
    clone.edit(r#""tea": "3""#, r#""tea": "5""#);
    (server, client, clone)
}

fn gitcd_output(server: &Server, words: &[&str]) -> String {
    let repository = format!("--repo={}", server.repository().path().display());
    let words = [&[words[0], &repository, "--key-prefixes=default=/registry"], &words[1..]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_gitcd")).args(&words).output().expect("gitcd can be started");
    assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

#[tokio::test]
async fn who_pushes_hears_of_conflicts_and_so_does_everybody_later() {
    let pages = free_port();
    let launch = Launch::new(Kind::Gitcd).argument(format!("--listen-metrics-urls=default=http://127.0.0.1:{pages}"));
    let (server, client, clone) = edited_by_both_at(launch).await;
    let pushed = clone.git(&["push", "-q", "origin", "main:refs/for/main"]);
    let said = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert!(pushed.status.success(), "{said}");
    let kept = value(&client).await.split(r#""tea":""#).nth(1).expect("the object has the field")[..1].to_owned();
    let lost = if kept == "9" { "5" } else { "9" };
    let line = format!(r#"conflict: data.tea kept "{kept}", lost "{lost}""#);
    let lines: Vec<_> = said.lines().map(str::trim_end).collect();
    assert_eq!(lines, [format!("remote: {FILE} was changed by others, too:"), format!("remote: {line}")]);
    committed(&server, &client).await;
    let log = gitcd_output(&server, &["log", "-p", FILE]);
    assert_eq!(log.matches(&format!("! {line}")).count(), 1, "{log}");
    assert!(!gitcd_output(&server, &["log", FILE]).contains("conflict"));
    let json: serde_json::Value =
        serde_json::from_str(&gitcd_output(&server, &["log", "-p", "--json", FILE])).expect("JSON");
    let conflicts: Vec<_> = json.as_array().unwrap().iter().filter_map(|entry| entry.get("conflicts")).collect();
    let (kept, lost) = (format!("\"{kept}\""), format!("\"{lost}\""));
    assert_eq!(conflicts, [&serde_json::json!([{"path": "data.tea", "kept": kept, "lost": lost}])]);
    let address = server.address();
    let status = Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .args(["status", &format!("--endpoint=http://{address}")])
        .output()
        .expect("gitcd can be started");
    let table = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.status.success(), "a resolved conflict is no failure: {table}");
    assert!(table.contains("external commits: 1 merge, 1 conflict\n"), "{table}");
    assert!(table.contains(&format!("    conflict {FILE} data.tea kept {kept}, lost {lost}")), "{table}");
    // Its clients may not read keys.
    let status = Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .args(["status", "--json", &format!("--endpoint=http://127.0.0.1:{pages}")])
        .output()
        .expect("gitcd can be started");
    let page = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(page.contains("data.tea") && !page.contains("\"kept\"") && !page.contains("\"lost\""), "{page}");
    let metrics = server.page("/metrics").await;
    for line in ["gitcd_external_merges_total 1", "gitcd_external_conflicts_total 1"] {
        assert!(metrics.lines().any(|found| found.trim_end_matches(".0") == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_merge_without_conflicts_says_nothing() {
    let (_server, client, clone) = edited_by_both().await;
    clone.done(&["reset", "-q", "--hard", "origin/main"]);
    clone.edit(r#""cup": "1""#, r#""cup": "2""#);
    let pushed = clone.git(&["push", "-q", "origin", "main:refs/for/main"]);
    assert!(pushed.status.success() && pushed.stderr.is_empty(), "{pushed:?}");
    assert_eq!(value(&client).await, map("9").replace(r#""cup":"1""#, r#""cup":"2""#));
}

#[tokio::test]
async fn an_annotated_tag_is_merged_as_the_commit_that_it_is_of() {
    let (_server, client, clone) = edited_by_both().await;
    clone.done(&["reset", "-q", "--hard", "origin/main"]);
    clone.edit(r#""cup": "1""#, r#""cup": "2""#);
    clone.done(&["tag", "-a", "-m", "one", "one"]);
    clone.done(&["tag", "-a", "-m", "of a tag", "two", "one"]);
    clone.done(&["push", "-q", "origin", "two:refs/for/main"]);
    assert_eq!(value(&client).await, map("9").replace(r#""cup":"1""#, r#""cup":"2""#));
}

#[tokio::test]
async fn what_is_pushed_to_the_folder_to_be_merged_is_merged_and_the_reference_goes() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    client.put(put(KEY, &map("3"))).await.ok();
    committed(&server, &client).await;
    let folder = server.repository().path().display().to_string();
    let clone = clone(&folder);
    client.put(put(KEY, &map("9"))).await.ok();
    committed(&server, &client).await;
    let is_gone = async || server.repository().git(&["for-each-ref", "refs/for"]).is_empty().then_some(());
    clone.done(&["push", "-q", "origin", "main^{tree}:refs/for/main"]);
    eventually("the reference to a tree to be deleted", is_gone).await;
    for cup in 2..5 {
        clone.edit(&format!(r#""cup": "{}""#, cup - 1), &format!(r#""cup": "{cup}""#));
        clone.done(&["tag", "-f", "-a", "-m", "edited", "edited"]);
        let what = if cup == 3 { "edited" } else { "main" };
        clone.done(&["push", "-q", "origin", &format!("{what}:refs/for/main")]);
        let merged = map("9").replace(r#""cup":"1""#, &format!(r#""cup":"{cup}""#));
        eventually("the merge", async || (value(&client).await == merged).then_some(())).await;
        eventually("the reference to be deleted", is_gone).await;
    }
    committed(&server, &client).await;
    server.repository().fsck();
}

#[tokio::test]
async fn what_was_pushed_to_the_folder_while_nobody_served_it_is_merged_at_the_next_start() {
    let mut server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    client.put(put(KEY, &map("3"))).await.ok();
    committed(&server, &client).await;
    let clone = clone(&server.repository().path().display().to_string());
    server.terminate().await;
    clone.edit(r#""cup": "1""#, r#""cup": "2""#);
    clone.done(&["push", "-q", "origin", "main:refs/for/main"]);
    server.restart().await;
    let client = server.client().await;
    let merged = map("3").replace(r#""cup":"1""#, r#""cup":"2""#);
    eventually("the merge", async || (value(&client).await == merged).then_some(())).await;
}
