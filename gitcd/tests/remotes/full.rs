//! A disk without space for a remote's commits.

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::small_disk::SmallDisk;
use crate::support::build::{get, put};
use crate::support::{Repository, Server};
use crate::world::{Following, ONE, OTHER, bare, has, holds, is};

const DISK_BYTES: u64 = 96 << 20;

/// A value larger than the remaining space, and hardly smaller in a pack.
fn noise() -> String {
    let mut letters = vec![0; 1 << 20];
    rand::fill(&mut letters[..]);
    letters.into_iter().map(|byte: u8| char::from(b'0' + byte % 64)).collect()
}

async fn no_room(upstream: Repository, url: &str) {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let following = Following::new(url);
    following.prepare(&Repository::init_through(&wrapper, &disk.path().join("repo.git")));
    let server: Server = following.launch(disk.path()).wrapper(&wrapper).start().await;
    let (client, writer) = (server.client().await, Following::new(url).start().await);
    writer.put(ONE, "small").await;
    has(&client, ONE, "small").await;
    // Once this write is on the remote, the merge is in Git. Otherwise its commit would wait for space and block fetches.
    client.put(put(OTHER, "written before")).await.ok();
    writer.has(OTHER, "written before").await;

    disk.fill();
    let large = noise();
    writer.put(ONE, &large).await;
    let known = is(&server, Condition::NoSpace).await;
    assert!(known.error.is_some_and(|error| error.contains("pace")), "the error does not mention the missing space");
    assert_eq!(client.range(get(ONE)).await.ok().kvs[0].value, "small");
    // The journal has preallocated some space.
    client.put(put(OTHER, "written meanwhile")).await.ok();

    disk.make_room();
    has(&client, ONE, &large).await;
    has(&client, OTHER, "written meanwhile").await;
    holds(&upstream, OTHER, "written meanwhile").await;
    writer.has(OTHER, "written meanwhile").await;
    is(&server, Condition::Synced).await;
    Repository::through(&wrapper, &disk.path().join("repo.git")).fsck();
}

#[tokio::test]
async fn a_full_disk_keeps_commits_of_a_folder_out_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    no_room(upstream, &url).await;
}

#[tokio::test]
async fn a_full_disk_keeps_commits_of_a_host_out_until_there_is_room() {
    let host = Host::open().await;
    no_room(host.make(), &host.url()).await;
}
