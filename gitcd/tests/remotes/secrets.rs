//! Credentials: revoked, restored, and never leaked.

use std::path::{Path, PathBuf};

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::support::eventually;
use crate::world::{Follower, Following, ONE, holds};

/// Installs a script in place of a program: it logs its arguments and environment, then runs `rest`.
pub(crate) fn noting(folder: &Path, name: &str, rest: &str) -> (PathBuf, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let (program, log) = (folder.join(name), folder.join(format!("{name}.log")));
    let script = format!("#!/bin/sh\n{{ printf '%s\\n' \"$@\"; env; }} >> '{}'\n{rest}\n", log.display());
    std::fs::write(&program, script).expect("the temporary folder is writable");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("the temporary folder is writable");
    let path = std::env::var("PATH").unwrap_or_default();
    (log, format!("{}:{path}", folder.display()))
}

/// Installs a logging script in place of `git`.
pub(crate) fn noting_git(folder: &Path) -> (PathBuf, String) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let git = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|git| git.is_file());
    noting(folder, "git", &format!("exec '{}' \"$@\"", git.expect("git is installed").display()))
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("the folder is writable");
    std::fs::rename(&new, path).expect("the folder is writable");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    File,
    Token,
    Url,
}

async fn revoked_and_given_back(way: Way, is_program: bool) {
    let host = Host::prepare("http");
    let file = |name: &str| host.folder().join(name);
    let (tokens, credentials) = (file("tokens"), file("credentials"));
    let rights = |secret: &str| {
        let text = format!("- user: both\n  token: {secret}\n  rights:\n  - repository: '*'\n    access: own\n");
        write(&tokens, &text);
    };
    rights("first-secret");
    let flag = format!("--tokens={}", tokens.display());
    let host = host.running(&[&flag]).await;
    let upstream = host.make();
    let give = |secret: &str| match way {
        Way::File => write(&credentials, &format!("http://both:{secret}@127.0.0.1:{}\n", host.port())),
        Way::Token => write(&credentials, &format!("{secret}\n")),
        Way::Url => rights(secret),
    };
    give("first-secret");
    let (log, path) = noting_git(host.folder());
    let following = match way {
        Way::File => Following::new(&host.url()).argument(format!("--credentials-file={}", credentials.display())),
        Way::Token => Following::new(&host.url()).argument(format!("--token-file={}", credentials.display())),
        Way::Url => Following::new(&host.url().replace("://", "://both:first-secret@")),
    };
    let mut following = following.variable("PATH", &path);
    if is_program {
        following = following.setting("http.userAgent", "special");
    }
    let follower = following.start().await;
    follower.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    if is_program {
        assert!(
            std::fs::read_to_string(&log).expect("the temporary folder is writable").contains("push"),
            "git must have been run"
        );
    } else {
        assert!(!log.exists(), "git must not be run");
    }
    rights("other-secret");
    follower.put(ONE, "2").await;
    follower.fails_with(Condition::Denied, &["127.0.0.1"]).await;
    give(if way == Way::Url { "first-secret" } else { "other-secret" });
    holds(&upstream, ONE, "2").await;
    follower.is(Condition::Synced).await;
    shows_no_secret(&follower, &log, way).await;
}

async fn shows_no_secret(follower: &Follower, log: &Path, way: Way) {
    let server = &follower.server;
    let process = PathBuf::from(format!("/proc/{}", server.id()));
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let mut texts = vec![
        ("output", server.output()),
        ("arguments", read(&process.join("cmdline"))),
        ("environment", read(&process.join("environ"))),
        ("arguments and environment of git", read(log)),
        ("status", server.page("/status").await),
        ("metrics", server.page("/metrics").await),
    ];
    assert!(!texts[1].1.is_empty() && !texts[2].1.is_empty());
    // A URL with credentials is in the configuration by intention.
    if way != Way::Url {
        texts.push(("configuration", read(&server.repository().path().join("config"))));
    }
    for (what, text) in texts {
        assert!(!text.contains("-secret"), "the {what} contains the secret: {text}");
    }
}

#[tokio::test]
async fn a_file_of_credentials() {
    revoked_and_given_back(Way::File, false).await;
}

#[tokio::test]
async fn a_file_of_credentials_for_git() {
    revoked_and_given_back(Way::File, true).await;
}

#[tokio::test]
async fn a_file_with_a_token() {
    revoked_and_given_back(Way::Token, false).await;
}

#[tokio::test]
async fn a_file_with_a_token_for_git() {
    revoked_and_given_back(Way::Token, true).await;
}

#[tokio::test]
async fn user_and_password_in_the_address() {
    revoked_and_given_back(Way::Url, false).await;
}

#[tokio::test]
async fn user_and_password_in_the_address_for_git() {
    revoked_and_given_back(Way::Url, true).await;
}

/// Starts a server that records the credentials of each request, if any.
pub(crate) async fn listener(
    answer: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static,
) -> (u16, ReceivedCredentials) {
    let received = ReceivedCredentials::default();
    let recorder = received.clone();
    let handler = move |request: axum::extract::Request| {
        let given =
            request.headers().get("authorization").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        recorder.lock().expect("no thread panics while holding the lock").push(given);
        let answer = answer();
        async move { answer }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port exists");
    let port = listener.local_addr().expect("the listener is bound").port();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(handler)).await });
    (port, received)
}

pub(crate) type ReceivedCredentials = std::sync::Arc<std::sync::Mutex<Vec<Option<String>>>>;

#[tokio::test]
async fn a_redirection_to_another_server_does_not_take_credentials_there() {
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse as _;
    let (other, received) =
        listener(|| (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=x")]).into_response()).await;
    let place = format!("http://localhost:{other}/up.git/info/refs?service=git-upload-pack");
    let (port, first) =
        listener(move || (StatusCode::FOUND, [(header::LOCATION, place.clone())]).into_response()).await;
    let follower = Following::new(&format!("http://ann:secret@127.0.0.1:{port}/up.git")).start().await;
    follower.put(ONE, "1").await;
    eventually("failures", async || (crate::world::remote(&follower.server).await.failures > 1).then_some(())).await;
    assert!(first.lock().unwrap().iter().any(Option::is_some), "the server of the URL must get the credentials");
    let received = received.lock().unwrap();
    assert!(!received.is_empty() && received.iter().all(Option::is_none), "{received:?}");
}
