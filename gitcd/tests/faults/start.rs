//! What prevents a start: permissions, ports, another server.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{explains, holds, recovers, write};
use crate::support::{DATA, Kind, Launch, METADATA, Server};

const WRITES: usize = 10;

async fn killed() -> Server {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..WRITES).await;
    server.kill();
    server
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let mut server = killed().await;
    let taken = TcpListener::bind(server.address()).expect("the server has stopped");
    explains(&server.restart_in_vain().await, &[&server.address().to_string(), "in use"]);
    drop(taken);
    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn a_port_in_use_for_the_host_is_named_before_anything_is_done() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port exists");
    let address = taken.local_addr().expect("a bound listener has an address");
    let mut server = Launch::new(Kind::Gitcd).argument(format!("--host-listen-urls=http://{address}")).spawn();
    let exit = server.exit().await;
    explains(&exit, &[&address.to_string(), "in use", "--host-listen-urls"]);
    assert!(!exit.output.contains("branch recovered"), "{}", exit.output);
}

#[tokio::test]
async fn a_second_server_on_the_branch_is_refused_and_the_first_goes_on() {
    let first = Server::start(Kind::Gitcd).await;
    let client = first.client().await;
    write(&client, 0..WRITES).await;

    let mut second = Launch::new(Kind::Gitcd).folder(first.folder()).spawn();
    let exit = second.exit().await;
    let path = first.repository().path().display().to_string();
    explains(&exit, &[&path, "another", "stop that one first", "--remote-names"]);

    write(&client, WRITES..WRITES + 1).await;
    holds(&client, 0..WRITES + 1).await;
    first.repository().fsck();
}

#[tokio::test]
async fn a_second_server_under_another_name_is_refused_if_it_shares_a_reference() {
    let first = Server::start(Kind::Gitcd).await;
    let client = first.client().await;
    write(&client, 0..WRITES).await;

    let path = first.repository().path().display().to_string();
    let (other_data, other_metadata) = ("refs/heads/other", "refs/gitcd/metadata/other");
    for (data, metadata) in [(DATA, METADATA), (DATA, other_metadata), (other_data, METADATA)] {
        let second = Launch::new(Kind::Gitcd)
            .folder(first.folder())
            .argument(format!("--data-reference-names=second={data}"))
            .argument(format!("--metadata-reference-names=second={metadata}"))
            .argument("--key-prefixes=second=/registry")
            .argument("--listen-urls=second=http://127.0.0.1:0");
        let exit = second.spawn().exit().await;
        let shared = if data == DATA { data } else { metadata };
        explains(&exit, &[&path, "another", &shared.replace('/', "%2F")]);
    }

    write(&client, WRITES..WRITES + 1).await;
    holds(&client, 0..WRITES + 1).await;
    first.repository().fsck();
}

#[tokio::test]
async fn the_branch_of_a_killed_server_is_free() {
    let first = killed().await;
    let second = Launch::new(Kind::Gitcd).folder(first.folder()).start().await;
    holds(&second.client().await, 0..WRITES).await;
}

#[tokio::test]
async fn a_folder_that_is_no_repository_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for prepare in [|_: &Path| {}, |path: &Path| std::fs::create_dir(path).unwrap()] {
        let path = folder.path().join("repo.git");
        prepare(&path);
        let mut server = Launch::new(Kind::Gitcd).folder(folder.path()).spawn();
        explains(&server.exit().await, &[path.to_str().unwrap(), "gitcd init"]);
    }
}

#[tokio::test]
async fn a_repository_that_may_not_be_read_is_named() {
    refused_without_permission(0o000).await;
}

#[tokio::test]
async fn a_repository_that_may_not_be_written_is_named() {
    refused_without_permission(0o555).await;
}

/// Permissions do not restrict root, so if the test runs as root, another user starts the server.
async fn refused_without_permission(mode: u32) {
    let mut owner = killed().await;
    let path = owner.repository().path().to_owned();
    allow(owner.folder(), 0o755);
    allow(&path, mode);
    // The build folder may not be accessible to other users.
    let copy = owner.folder().join("gitcd");
    std::fs::copy(env!("CARGO_BIN_EXE_gitcd"), &copy).expect("the temporary folder is writable");
    allow(&copy, 0o755);

    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--reset-env"];
    let root = rustix::process::geteuid().is_root();
    if root {
        // Git rejects a repository owned by another user before it looks at permissions.
        std::os::unix::fs::chown(&path, Some(65534), None).expect("root may change owners");
    }
    let mut other = Launch::new(Kind::Gitcd)
        .folder(owner.folder())
        .program(&copy)
        .wrapper(if root { &nobody } else { &[] })
        .spawn();
    let exit = other.exit().await;
    allow(&path, 0o755);
    if root {
        std::os::unix::fs::chown(&path, Some(0), None).expect("root may change owners");
    }
    explains(&exit, &[&path.display().to_string(), "ermission denied"]);
    recovers(&mut owner, 0..WRITES).await;
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the file is ours");
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let repository = format!("--repo={}", folder.path().join("repo.git").display());
    let wrong = [
        "--listen-urls=default=ftp://127.0.0.1:1",
        "--listen-urls=default=http://127.0.0.1:99999",
        "--listen-urls=nonsense",
        "--no-such-flag",
        "--commit-granularity=sometimes",
    ];
    for argument in wrong {
        let output = Command::new(env!("CARGO_BIN_EXE_gitcd"))
            .args(["serve", &repository, argument])
            .output()
            .expect("gitcd can be started");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{argument}");
        let flag = argument.split('=').next().unwrap();
        assert!(words.contains(flag) && !words.contains("panicked"), "{argument}: {words}");
    }
}

#[tokio::test]
async fn a_port_is_free_again_right_after_the_end() {
    let mut server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    write(&client, 0..WRITES).await;
    server.terminate().await;
    assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).is_ok());
    server.restart().await;
    holds(&server.client().await, 0..WRITES).await;
}
