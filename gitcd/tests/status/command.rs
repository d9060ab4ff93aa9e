//! `gitcd status`.

use crate::authority::Authority;
use crate::page::{follower, status, write};
use crate::support::{Kind, Launch, Repository, Server, eventually, free_port};
use crate::{gitcd, text};

use gitcd::pull::status::Condition;

fn endpoint(server: &Server) -> String {
    format!("--endpoint=http://{}", server.address())
}

#[tokio::test]
async fn branches_and_their_remotes_are_a_table_without_colours() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Server::start(Kind::Gitcd).await;
    let server = follower(folder.path(), desk.repository().path()).await;
    write(&desk, "prices", "3").await;
    let branch = eventually("the merge", async || {
        let branch = status(&server).await;
        let remote = &branch.remotes[0];
        let is_done =
            branch.revision == 2 && remote.lag_commits == Some(0) && remote.known.condition == Condition::Synced;
        (is_done && branch.commit_lag_revisions == 0).then_some(branch)
    })
    .await;
    let output = gitcd(&["status", &endpoint(&server)]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["BRANCH", "REVISION", "HEAD", "COMMIT", "LAG"]);
    assert_eq!(lines[1], ["default", "2", &branch.head[..10], "none"]);
    assert_eq!(lines[2][..2], ["desk", "Synced"]);
    assert!(table.contains("nothing to merge") && table.contains("nothing rejected") && !table.contains('\u{1b}'));
    assert_eq!(lines.len(), 3, "{table}");

    // Two servers, in the order of the flags.
    let both = gitcd(&["status", "--json", &endpoint(&server), &endpoint(&desk)]);
    assert!(both.status.success(), "{both:?}");
    let both: serde_json::Value = serde_json::from_slice(&both.stdout).unwrap();
    assert_eq!(both[0]["status"]["branches"][0]["remotes"][0]["condition"], "Synced");
    assert_eq!(both[1]["endpoint"], format!("http://{}", desk.address()));
    assert_eq!(both[1]["status"]["branches"][0]["remotes"], serde_json::json!([]));
}

#[tokio::test]
async fn a_remote_that_is_away_and_a_server_that_is_away_make_it_fail() {
    let folder = tempfile::tempdir().unwrap();
    let server = follower(folder.path(), &folder.path().join("nowhere.git")).await;
    eventually("an attempt", async || {
        (status(&server).await.remotes[0].known.condition == Condition::Unreachable).then_some(())
    })
    .await;
    let output = gitcd(&["status", &endpoint(&server)]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(table.contains("Unreachable") && table.contains("nowhere.git cannot be opened"), "{table}");
    assert!(table.contains("never merged") && table.contains("lag unknown"), "{table}");

    let desk = Server::start(Kind::Gitcd).await;
    let away = format!("--endpoint=http://127.0.0.1:{}", free_port());
    let output = gitcd(&["status", &away, &endpoint(&desk)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot connect; --endpoint says where"), "{output:?}");
    assert!(text(&output.stdout).contains("default"), "the other server must be listed: {output:?}");
    let output = gitcd(&["status", "--json", &away]);
    assert_eq!(output.status.code(), Some(1));
    let statuses: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(statuses[0]["error"].as_str().unwrap_or_default().contains("cannot connect"), "{statuses}");
}

#[tokio::test]
async fn a_remote_that_is_not_pulled_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Server::start(Kind::Gitcd).await;
    let repository = Repository::init(&folder.path().join("repo.git"));
    repository.git(&["remote", "add", "desk", &desk.repository().path().display().to_string()]);
    let launch = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--remote-names=default=desk:phone");
    let server = launch.start().await;
    let branch = eventually("the conditions of both remotes", async || {
        let branch = status(&server).await;
        branch.remotes.iter().all(|remote| remote.known.error.is_some()).then_some(branch)
    })
    .await;
    let of =
        |at: usize| (branch.remotes[at].known.condition, branch.remotes[at].known.error.clone().unwrap_or_default());
    assert_eq!(of(0), (Condition::Unknown, "it is not pulled: --pull-ticker-duration is 0".to_owned()));
    assert!(of(1).0 == Condition::Failed && of(1).1.contains("remote add phone URL"), "{:?}", of(1));
    assert!(server.output().contains("it is not pulled"), "{}", server.output());
    let output = gitcd(&["status", &endpoint(&server)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("    it is not pulled: --pull-ticker-duration is 0"), "{output:?}");
}

#[tokio::test]
async fn a_server_with_tls_is_asked_with_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (server, client) = (servers.issue("gitcd"), clients.issue("me"));
    let (cert, key) = (file("server.crt", &server.cert), file("server.key", &server.key));
    let (roots, trusted) = (file("servers.crt", servers.pem()), file("clients.crt", clients.pem()));
    let (own, own_key) = (file("me.crt", &client.cert), file("me.key", &client.key));
    let server = Launch::new(Kind::Gitcd)
        .secure()
        .argument(format!("--tls-cert=default={cert}"))
        .argument(format!("--tls-key=default={key}"))
        .argument(format!("--tls-trusted-ca-certs=default={trusted}"))
        .start()
        .await;
    let url = format!("--endpoint=https://{}", server.secure_address());
    let (cacert, own) = (format!("--cacert={roots}"), format!("--cert={own}"));
    let asked = gitcd(&["status", &url, &cacert, &own, &format!("--key={own_key}")]);
    assert!(asked.status.success() && text(&asked.stdout).contains("default"), "{asked:?}");
    for refused in [vec![&url], vec![&url, &cacert]] {
        let words: Vec<&str> = ["status"].into_iter().chain(refused.into_iter().map(String::as_str)).collect();
        let output = gitcd(&words);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}
