//! The repository of a served branch is kept in order while everything goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use gitcd::proto::etcdserverpb::DefragmentRequest;

use super::support::build::{get, put};
use super::support::{Client, DATA, Kind, Launch, Repository, Server, eventually};

/// Packs that were written a moment ago are left alone; all but the newest one are not from then.
fn age(repository: &Path) {
    let old = SystemTime::now() - Duration::from_mins(5);
    let entries = std::fs::read_dir(repository.join("objects/pack")).expect("it can be read").flatten();
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut packs: Vec<_> = entries.map(|entry| entry.path()).map(|path| (modified(&path), path)).collect();
    packs.retain(|(_, path)| path.extension().is_some_and(|extension| extension == "pack"));
    packs.sort();
    packs.pop();
    // What is old enough stays as it is: a pack that is touched while it is being joined stays, too.
    packs.retain(|(at, _)| at.is_none_or(|at| at > old + Duration::from_mins(1)));
    for (_, path) in packs {
        // One may go at this moment.
        if let Ok(file) = std::fs::File::open(path) {
            let _gone = file.set_modified(old);
        }
    }
}

fn packs(repository: &Path) -> usize {
    let files = std::fs::read_dir(repository.join("objects/pack")).expect("it can be read").flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count()
}

async fn figure(server: &Server, name: &str) -> f64 {
    let page = server.page("/metrics").await;
    let figure = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    figure.unwrap_or_else(|| panic!("there is no {name}"))
}

/// Two branches that take one another's changes.
async fn pair(folder: &Path) -> Vec<Server> {
    let path = |name: &str| folder.join(name).join("repo.git");
    let mut servers = Vec::new();
    for (name, other) in [("one", "other"), ("other", "one")] {
        std::fs::create_dir(folder.join(name)).expect("the folder is writable");
        Repository::init(&path(name)).git(&["remote", "add", "origin", &path(other).display().to_string()]);
        let launch = Launch::new(Kind::Gitcd).folder(&folder.join(name)).argument("--key-prefixes=/registry");
        let launch = launch.argument("--remote-names=origin").argument("--pull-ticker-duration=100ms");
        servers.push(launch.start().await);
    }
    servers
}

/// Puts values until it is told to stop, and returns those that were acknowledged. The server may be away in between.
async fn write(client: Client, name: &'static str, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0_u64.. {
        let key = format!("/registry/configmaps/{name}/k{}", number % 40);
        // So much that packs soon are as large as one that a branch goes on with becomes.
        let text = (0..48).map(|_| rand::random::<u64>().to_string()).collect::<String>();
        if client.put(put(&key, &format!("{{\"n\":{number},\"text\":\"{text}\"}}\n"))).await.result().is_ok() {
            acknowledged.insert(key, number);
        } else {
            // Whether it was taken nobody knows.
            acknowledged.remove(&key);
            tokio::task::yield_now().await;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}

/// Asks for one pack again and again, and kills the server in between.
async fn disturb(server: &mut Server, client: &Client, path: &Path, stop: Arc<AtomicBool>) {
    for round in 0..4 {
        let before = packs(path);
        eventually("more packs", async || (packs(path) > before + 2).then_some(())).await;
        age(path);
        let joins = figure(server, "gitcd_pack_joins_total").await;
        // Kept waiting until it is under way, or until it is done. A pack that the branch goes on with may go at the very moment at which it was to be joined.
        let is_killed = round > 0;
        eventually("packs that are joined", async || {
            let is_done = figure(server, "gitcd_pack_joins_total").await > joins;
            let is_under_way = figure(server, "etcd_disk_defrag_inflight").await > 0.0;
            if !is_done && !is_under_way {
                age(path);
                client.defragment(DefragmentRequest {}).await.ok();
            }
            (is_done || is_killed && is_under_way).then_some(())
        })
        .await;
        if is_killed {
            server.kill();
            server.restart().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
}

/// Every branch gets to what was acknowledged.
async fn agree(servers: &[Server], wanted: &BTreeMap<String, u64>) {
    for server in servers {
        let client = server.client().await;
        for (key, number) in wanted {
            eventually(&format!("{key} at {number} or later"), async || {
                let found = client.range(get(key)).await.ok().kvs.pop()?;
                let value: serde_json::Value = serde_json::from_slice(&found.value).expect("it is JSON");
                (value["n"].as_u64() >= Some(*number)).then_some(())
            })
            .await;
        }
    }
}

/// Nothing is missing, and nothing was in conflict.
fn is_sound(server: &Server) {
    let repository = server.repository();
    // Nobody writes what another one writes; also not if it is killed between what it has merged and its commit.
    assert_eq!(repository.git(&["log", "--format=%h %s", "--grep=^Conflict: ", DATA]), "");
    repository.git(&["fsck", "--full", "--strict"]);
    let words = ["verify", "--repo", &repository.path().display().to_string()];
    let verified = Command::new(env!("CARGO_BIN_EXE_gitcd")).args(words).output().expect("it can be started");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[tokio::test]
async fn packs_are_joined_while_branches_are_written_merged_and_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut servers = pair(folder.path()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let first = write(servers[0].client().await.aside(), "one", stop.clone());
    let second = write(servers[1].client().await.aside(), "other", stop.clone());
    let path = servers[0].repository().path().to_owned();
    let client = servers[0].client().await;
    let disturbing = disturb(&mut servers[0], &client, &path, stop);
    let (mut wanted, others, ()) = tokio::join!(first, second, disturbing);
    wanted.extend(others);
    assert!(wanted.len() > 40, "{} keys", wanted.len());
    agree(&servers, &wanted).await;
    for server in &mut servers {
        assert!(server.terminate().await.status.success());
        age(server.repository().path());
    }
    // Nobody writes any more: all become one.
    servers[0].restart().await;
    let client = servers[0].client().await;
    eventually("one pack", async || {
        age(&path);
        client.defragment(DefragmentRequest {}).await.ok();
        (packs(&path) <= 2).then_some(())
    })
    .await;
    assert!(servers[0].terminate().await.status.success());
    servers.iter().for_each(is_sound);
    servers[0].repository().git(&["commit-graph", "verify"]);
}

fn gc(repository: &Path) -> Child {
    let mut git = Command::new("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
    let git = git.arg("-C").arg(repository).args(["gc", "--quiet"]).stderr(Stdio::piped());
    git.spawn().expect("git is installed")
}

/// Waits until it is done. Git gives up, and has changed nothing, if a pack goes between two looks of it; then a person asks again.
fn collected(mut git: Child, repository: &Path) {
    for _ in 0..10 {
        let done = git.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            return;
        }
        assert!(said.contains("unable to add recent objects"), "{said}");
        git = gc(repository);
    }
    panic!("git gc never came to its end");
}

/// Whoever cares for a repository with Git's own means need not know that it is being served.
#[tokio::test]
async fn a_person_collects_garbage_while_branches_are_written_merged_and_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut servers = pair(folder.path()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let first = write(servers[0].client().await.aside(), "one", stop.clone());
    let second = write(servers[1].client().await.aside(), "other", stop.clone());
    let path = servers[0].repository().path().to_owned();
    let mut fewer = 0;
    let collecting = async {
        for round in 0..6 {
            let before = packs(&path);
            eventually("more packs", async || (packs(&path) > before + 2).then_some(())).await;
            let before = packs(&path);
            let git = gc(&path);
            if round % 3 == 2 {
                servers[0].kill();
                servers[0].restart().await;
            }
            let of = path.clone();
            tokio::task::spawn_blocking(move || collected(git, &of)).await.expect("git ends well");
            fewer += usize::from(packs(&path) < before);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (mut wanted, others, ()) = tokio::join!(first, second, collecting);
    assert!(fewer > 0, "there was never anything to collect");
    wanted.extend(others);
    assert!(wanted.len() > 40, "{} keys", wanted.len());
    agree(&servers, &wanted).await;
    for server in &mut servers {
        assert!(server.terminate().await.status.success());
    }
    servers.iter().for_each(is_sound);
}
