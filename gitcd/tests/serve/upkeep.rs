//! Repacking and garbage collection of a served repository under load.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use gitcd::proto::etcdserverpb::DefragmentRequest;

use super::support::build::{get, put};
use super::support::{Client, DATA, Kind, Launch, Repository, Server, eventually};

/// Makes all packs but the newest look old, as repacking skips packs that were written recently.
fn age(repository: &Path) {
    let old = SystemTime::now() - Duration::from_mins(5);
    let entries = std::fs::read_dir(repository.join("objects/pack")).expect("the pack folder is readable").flatten();
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut packs: Vec<_> = entries.map(|entry| entry.path()).map(|path| (modified(&path), path)).collect();
    packs.retain(|(_, path)| path.extension().is_some_and(|extension| extension == "pack"));
    packs.sort();
    packs.pop();
    // Old packs keep their time, as a pack that is touched during its repack is not removed.
    packs.retain(|(at, _)| at.is_none_or(|at| at > old + Duration::from_mins(1)));
    for (_, path) in packs {
        // A repack may remove it at this moment.
        if let Ok(file) = std::fs::File::open(path) {
            let _gone = file.set_modified(old);
        }
    }
}

fn packs(repository: &Path) -> usize {
    let files = std::fs::read_dir(repository.join("objects/pack")).expect("the pack folder is readable").flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count()
}

async fn figure(server: &Server, name: &str) -> f64 {
    let page = server.page("/metrics").await;
    let figure = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    figure.unwrap_or_else(|| panic!("no metric {name}"))
}

/// Starts two servers that merge each other's branch.
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

/// Puts values until `stop` is set, also while the server is down; returns the acknowledged ones.
async fn write(client: Client, name: &'static str, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0_u64.. {
        let key = format!("/registry/configmaps/{name}/k{}", number % 40);
        // Large enough that packs soon reach the size at which a flush starts a new one.
        let text = (0..48).map(|_| rand::random::<u64>().to_string()).collect::<String>();
        if client.put(put(&key, &format!("{{\"n\":{number},\"text\":\"{text}\"}}\n"))).await.result().is_ok() {
            acknowledged.insert(key, number);
        } else {
            // The outcome is unknown.
            acknowledged.remove(&key);
            tokio::task::yield_now().await;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}

/// Repeatedly starts a repack, and kills the server during it.
async fn disturb(server: &mut Server, client: &Client, path: &Path, stop: Arc<AtomicBool>) {
    for round in 0..4 {
        let before = packs(path);
        eventually("more packs", async || (packs(path) > before + 2).then_some(())).await;
        age(path);
        let joins = figure(server, "gitcd_pack_joins_total").await;
        // Retried until a repack is in progress or done: a flush may replace the newest pack just when it should be repacked.
        let is_killed = round > 0;
        eventually("a repack", async || {
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

/// Waits until every branch has the acknowledged values.
async fn agree(servers: &[Server], wanted: &BTreeMap<String, u64>) {
    for server in servers {
        let client = server.client().await;
        for (key, number) in wanted {
            eventually(&format!("{key} at {number} or later"), async || {
                let found = client.range(get(key)).await.ok().kvs.pop()?;
                let value: serde_json::Value = serde_json::from_slice(&found.value).expect("the value is JSON");
                (value["n"].as_u64() >= Some(*number)).then_some(())
            })
            .await;
        }
    }
}

/// Asserts that the repository is complete, and that no merge had a conflict.
fn is_sound(server: &Server) {
    let repository = server.repository();
    // Each branch writes its own keys, so there are no conflicts, not even after a kill between a merge and its commit.
    assert_eq!(repository.git(&["log", "--format=%h %s", "--grep=^Conflict: ", DATA]), "");
    repository.git(&["fsck", "--full", "--strict"]);
    let words = ["verify", "--repo", &repository.path().display().to_string()];
    let verified = Command::new(env!("CARGO_BIN_EXE_gitcd")).args(words).output().expect("gitcd can be started");
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
    // Without further writes, one pack remains.
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

/// Waits for `git gc`. If a pack vanishes while it works, it fails without changing anything, and is retried.
fn collected(mut git: Child, repository: &Path) {
    for _ in 0..10 {
        let done = git.wait_with_output().expect("git exits");
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            return;
        }
        // The first is said by `git pack-objects`, the second by `git prune`.
        let is_race = ["unable to add recent objects", "unable to mark recent objects"];
        assert!(is_race.iter().any(|words| said.contains(words)), "{said}");
        git = gc(repository);
    }
    panic!("git gc failed ten times");
}

/// `git gc` is safe while the repository is served.
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
            tokio::task::spawn_blocking(move || collected(git, &of)).await.expect("git gc succeeds");
            fewer += usize::from(packs(&path) < before);
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (mut wanted, others, ()) = tokio::join!(first, second, collecting);
    assert!(fewer > 0, "git gc never reduced the packs");
    wanted.extend(others);
    assert!(wanted.len() > 40, "{} keys", wanted.len());
    agree(&servers, &wanted).await;
    for server in &mut servers {
        assert!(server.terminate().await.status.success());
    }
    servers.iter().for_each(is_sound);
}
