//! `gitcd prepare`: repositories that start from a remote's branch.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::Host;
use crate::support::build::put;
use crate::support::{DATA, Kind, Launch, METADATA, Repository, Server};
use crate::world::{ONE, OTHER, has, holds};

fn prepare(folder: &Path, url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command
        .arg("prepare")
        .arg(format!("--repo={}", folder.join("repo.git").display()))
        .arg(format!("--remote-url={url}"));
    command.args(arguments).output().expect("gitcd can be started")
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a repository with two writes; its server has stopped.
async fn upstream() -> Server {
    let mut server = Server::start(Kind::Gitcd).await;
    server.client().await.put(put(ONE, "1")).await.ok();
    server.client().await.put(put(OTHER, "2")).await.ok();
    server.terminate().await;
    server
}

#[tokio::test]
async fn a_branch_goes_on_where_the_remote_has_it_and_the_remote_is_not_asked_twice() {
    let up = upstream().await;
    let path = up.repository().path().display().to_string();
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    // Repeated, as after a crash.
    for _ in 0..2 {
        prepare(folder.path(), &path, &["--fail-on-no-branch"]);
    }
    let repository = Repository::at(&folder.path().join("repo.git"));
    for reference in [DATA, METADATA] {
        assert_eq!(repository.reference(reference), up.repository().reference(reference));
    }
    assert_eq!(repository.git(&["config", "remote.origin.fetch"]).trim(), "+refs/heads/*:refs/remotes/origin/*");
    let mut server = Launch::new(Kind::Gitcd).folder(folder.path()).start().await;
    has(&server.client().await, ONE, "1").await;
    server.client().await.put(put(ONE, "3")).await.ok();
    server.terminate().await;
    // On a branch that was served here, `prepare` changes nothing, even if the remote is unreachable; it only stores the new
    // URL.
    let said = done(&prepare(folder.path(), "/nowhere/x.git", &["--fail-on-no-branch", "--fail-on-no-remote-branch"]));
    assert!(said.contains("is already in"), "{said}");
    assert_eq!(repository.git(&["config", "remote.origin.url"]).trim(), "/nowhere/x.git");
    server.restart().await;
    has(&server.client().await, ONE, "3").await;
    server.terminate().await;
    repository.fsck();
}

#[tokio::test]
async fn a_branch_that_is_nowhere_fails_begins_with_the_other_one_or_begins_empty_as_requested() {
    let up = upstream().await;
    let path = up.repository().path().display().to_string();
    let ours = [
        "--data-reference-names=default=refs/heads/kcm/data",
        "--metadata-reference-names=default=refs/heads/kcm/metadata",
    ];
    let theirs = "--remote-data-reference-names=default=refs/heads/main";
    for (arguments, missing) in [
        (&["--fail-on-no-branch"][..], "refs/heads/kcm/data"),
        (
            &["--fail-on-no-remote-branch=true", "--remote-data-reference-names=default=refs/heads/away"],
            "refs/heads/away",
        ),
        (&["--clone=false", "--fail-on-no-remote-branch", "--remote-data-reference-names=away"], "refs/heads/away"),
    ] {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let said = refused(&prepare(folder.path(), &path, &[&ours, arguments].concat()));
        assert!(said.contains(missing) && said.contains("push it there first"), "{said}");
    }
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repository = Repository::at(&folder.path().join("repo.git"));
    for arguments in [&["--clone=false", theirs][..], &[theirs]] {
        let said = done(&prepare(folder.path(), &path, &[&ours, arguments].concat()));
        assert!(said.contains("has no refs/heads/kcm/data yet"), "{said}");
    }
    done(&prepare(folder.path(), &path, &[&ours[..], &[theirs, "--begin-with-remote-branch"]].concat()));
    assert_eq!(repository.reference("refs/heads/kcm/data"), up.repository().reference(DATA));
    let said =
        refused(&prepare(folder.path(), "/nowhere/x.git", &["--remote-name=desk", "--fail-on-no-remote-branch"]));
    assert!(said.contains("desk") && said.contains("/nowhere/x.git"), "{said}");
}

#[tokio::test]
async fn a_mounted_secret_opens_a_remote_for_preparation_and_for_serving() {
    let host = Host::prepare("http");
    let tokens = host.folder().join("tokens");
    let rights = "- user: ann\n  token: first-secret\n  rights:\n  - repository: '*'\n    access: own\n";
    std::fs::write(&tokens, rights).expect("the temporary folder is writable");
    let host = host.running(&[&format!("--tokens={}", tokens.display())]).await;
    let upstream = host.make();
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).expect("the folder does not exist yet");
    let credentials = format!("--credentials-folder={}", secret.display());
    let said = refused(&prepare(folder.path(), &host.url(), &[&credentials]));
    assert!(said.contains("Authentication failed"), "{said}");
    std::fs::write(secret.join("username"), "ann").expect("the temporary folder is writable");
    std::fs::write(secret.join("password"), "first-secret\n").expect("the temporary folder is writable");
    let output = prepare(folder.path(), &host.url(), &[&credentials]);
    let said = done(&output);
    assert!(said.contains("has no refs/heads/main yet"), "{said}");
    assert!(!format!("{output:?}").contains("first-secret"), "{output:?}");
    Repository::init(&folder.path().join("repo.git"));
    let launch = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--remote-names=origin");
    let launch = launch.argument("--pull-ticker-duration=200ms").argument("--push-after-merges=true");
    let mut server = launch.argument(&credentials).start().await;
    server.client().await.put(put(ONE, "1")).await.ok();
    holds(&upstream, ONE, "1").await;
    server.terminate().await;
}

#[tokio::test]
async fn a_branch_that_must_be_there_and_a_remote_that_does_not_answer_are_waited_for() {
    let up = upstream().await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let (repository, late) = (folder.path().join("repo.git"), folder.path().join("late.git"));
    let begin = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.arg("prepare").arg(format!("--repo={}", repository.display()));
        command.arg(format!("--remote-url={}", late.display())).args(["--fail-on-no-branch", "--wait=1m"]);
        let mut waiting = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gitcd can be started");
        let mut said = String::new();
        let stderr = waiting.stderr.as_mut().expect("stderr is piped");
        BufReader::new(stderr).read_line(&mut said).expect("gitcd reports what it waits for");
        assert!(said.starts_with("waiting for up to 60 s: "), "{said}");
        (waiting, said)
    };
    // SIGTERM must end the wait.
    let (mut ended, _) = begin();
    let pid = Pid::from_raw(i32::try_from(ended.id()).expect("a process ID fits")).expect("a process ID is not 0");
    let signalled = Instant::now();
    kill_process(pid, Signal::TERM).expect("the process exists");
    let status = ended.wait().expect("the process exits");
    assert!(status.code() == Some(1) && signalled.elapsed() < Duration::from_secs(20), "{status}");
    let (waiting, said) = begin();
    assert!(said.contains("late.git"), "the repository must be reported as missing: {said}");
    let made = folder.path().join("made.git");
    up.repository().git(&["clone", "--quiet", "--mirror", ".", &made.display().to_string()]);
    std::fs::rename(&made, &late).expect("the temporary folder is writable");
    let waited = waiting.wait_with_output().expect("the process exits");
    assert!(done(&waited).contains("continues from origin"));
    std::fs::remove_dir_all(&repository).expect("the temporary folder is writable");
    let remote = Repository::at(&late);
    remote.git(&["update-ref", "-d", DATA]);
    let (waiting, said) = begin();
    assert!(said.contains("push it there first"), "{said}");
    remote.git(&["update-ref", DATA, &up.repository().reference(DATA)]);
    done(&waiting.wait_with_output().expect("the process exits"));
    assert_eq!(Repository::at(&repository).reference(DATA), up.repository().reference(DATA));
}
