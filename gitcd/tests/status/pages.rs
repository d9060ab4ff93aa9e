//! `/status` on a separate port that serves nothing else.

use std::process::{Child, Command, Stdio};

use crate::authority::Authority;
use crate::support::{Kind, Launch, Repository, eventually, free_port};
use crate::{gitcd, text};

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[tokio::test]
async fn who_has_a_certificate_reads_the_status_there_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (server, client) = (authority.issue("gitcd"), authority.issue("me"));
    let roots = file("ca.crt", authority.pem());
    let (cert, key) = (file("server.crt", &server.cert), file("server.key", &server.key));
    let (own, own_key) = (file("me.crt", &client.cert), file("me.key", &client.key));
    let flags = |port: u16| {
        [
            format!("--listen-metrics-urls=default=https://127.0.0.1:{port}"),
            format!("--tls-cert=default={cert}"),
            format!("--tls-key=default={key}"),
            format!("--tls-trusted-ca-certs=default={roots}"),
        ]
    };
    let asked = |port: u16, own: &[String]| {
        let url = format!("--endpoint=https://127.0.0.1:{port}");
        let cacert = format!("--cacert={roots}");
        let words = ["status", url.as_str(), cacert.as_str(), "--json"].into_iter();
        gitcd(&words.chain(own.iter().map(String::as_str)).collect::<Vec<_>>())
    };
    let own = [format!("--cert={own}"), format!("--key={own_key}")];

    let port = free_port();
    let launch = flags(port).into_iter().fold(Launch::new(Kind::Gitcd), Launch::argument);
    let _server = launch.start().await;
    let answer = asked(port, &own);
    assert!(answer.status.success() && text(&answer.stdout).contains("committed_revision"), "{answer:?}");
    assert_eq!(asked(port, &[]).status.code(), Some(1), "must be refused without a certificate");
    // Neither the JSON API nor gRPC is served. HTTP/1.1, because the response comes before the body has been read: over HTTP/2,
    // curl fails (92) if the stream ends while it is sending.
    let mut curl = Command::new("curl");
    curl.args(["--http1.1", "--silent", "--cacert", &roots, "--cert", &own[0]["--cert=".len()..], "--key", &own_key]);
    curl.args(["--data", "{}", "--write-out", "%{http_code}", "--output", "/dev/null"]);
    let asked_for_keys = curl.arg(format!("https://127.0.0.1:{port}/v3/kv/range")).output().unwrap();
    assert_eq!(text(&asked_for_keys.stdout), "404", "{asked_for_keys:?}");

    // `gitcd pull` serves it, too.
    let upstream = Repository::init(&folder.path().join("upstream.git"));
    let ours = folder.path().join("ours.git");
    let repository = Repository::init(&ours);
    repository.git(&["remote", "add", "origin", &upstream.path().display().to_string()]);
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(["pull", "--remote-names=default=origin", "--pull-ticker-duration=1s"]).args(flags(port));
    let command = command.arg(format!("--repo={}", ours.display())).stdin(Stdio::null());
    let _pull = Ends(command.spawn().unwrap());
    eventually("the status of a pull", async || {
        let answer = asked(port, &own);
        text(&answer.stdout).contains("\"origin\"").then_some(())
    })
    .await;
}
