//! Files that only the server's user can access, whatever umask it was started with.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gitcd::proto::etcdserverpb::DefragmentRequest;

use super::support::build::put;
use super::support::{Kind, Launch, Repository, Server, eventually};
use super::{key, value};

/// Runs a program with a umask that takes no permissions away.
const OPEN: &[&str] = &["sh", "-c", "umask 0; exec \"$0\" \"$@\""];

/// Returns files and folders below `folder`, and itself, that group or others can access, with their modes.
fn accessible(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().expect("nothing is deleted meanwhile");
        if metadata.is_dir() {
            open.extend(path.read_dir().expect("the folder is readable").map(|entry| entry.expect("it is").path()));
        }
        if metadata.mode() & 0o077 != 0 {
            found.push((path, format!("{:o}", metadata.mode() & 0o7777)));
        }
    }
    found
}

async fn serve(folder: &Path) -> Server {
    Launch::new(Kind::Gitcd).folder(folder).wrapper(OPEN).start().await
}

/// Writes, commits and repacks, and stops the server.
async fn work(server: &mut Server) {
    let client = server.client().await;
    for number in 0..3 {
        client.put(put(&key(number), &value(number))).await.ok();
        let (repository, revision) = (server.repository(), number as i64 + 2);
        eventually("the commit", async || (repository.committed_revision() >= revision).then_some(())).await;
    }
    client.defragment(DefragmentRequest {}).await.ok();
    server.terminate().await;
}

#[tokio::test]
async fn no_file_of_a_new_repository_is_accessible_to_others() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    Repository::init_through(OPEN, &folder.path().join("repo.git"));
    let mut server = serve(folder.path()).await;
    work(&mut server).await;
    assert_eq!(accessible(server.repository().path()), []);
    server.restart().await;
    assert!(!server.output().contains("other users can access"), "{}", server.output());
}

#[tokio::test]
async fn a_shared_repository_stays_shared_but_for_the_local_state() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join("repo.git");
    let shared = std::process::Command::new("git").args(["init", "-q", "--bare", "--shared=group"]).arg(&path).status();
    assert!(shared.expect("git is installed").success());
    Repository::init_through(OPEN, &path);
    let mut server = serve(folder.path()).await;
    work(&mut server).await;
    assert_eq!(accessible(&path.join("gitcd/default")), []);
    let packs = path.join("objects/pack").read_dir().expect("the folder is readable");
    let modes: Vec<_> = packs.map(|pack| pack.expect("it is").metadata().expect("it exists").mode() & 0o777).collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| mode & 0o047 == 0o040), "{modes:?}");
}

#[tokio::test]
async fn a_state_folder_that_others_can_access_is_reported_at_the_start() {
    let mut server = Server::start(Kind::Gitcd).await;
    server.terminate().await;
    let state = server.repository().path().join("gitcd/default");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).expect("the folder is ours");
    server.restart().await;
    let warning = format!("chmod -R go-rwx {}", state.display());
    assert!(server.output().contains(&warning), "{}", server.output());
}
