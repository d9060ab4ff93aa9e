//! Panics of internal tasks are seen, and repaired or final: a task is started again, a broken store refuses writes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gitcd::status::Status;

use super::{holds, key, value, write};
use crate::support::build::{get, put};
use crate::support::{DATA, Kind, Launch, Repository, Server, eventually, free_port, http};

/// The tasks that are started again.
const TASKS: [&str; 5] = ["lease-expiry", "compaction", "external-commits", "pull", "maintenance"];

/// Returns a launch with fail points in the folder, and the folder.
fn launch(folder: &Path) -> (Launch, PathBuf) {
    let points = folder.join("fail-points");
    std::fs::create_dir(&points).expect("the folder is new");
    let variable = format!("GITCD_FAIL_POINTS={}", points.display());
    (Launch::new(Kind::Gitcd).wrapper(&["env", &variable]), points)
}

async fn status(server: &Server) -> Status {
    serde_json::from_str(&server.page("/status").await).expect("the status is JSON")
}

#[tokio::test]
async fn a_task_that_panics_is_reported_and_started_again_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, points) = launch(folder.path());
    let upstream = folder.path().join("upstream.git");
    git2::Repository::init_bare(&upstream).unwrap();
    let repository = Repository::init(&folder.path().join("repo.git"));
    repository.git(&["remote", "add", "up", upstream.to_str().unwrap()]);
    let launch = launch.folder(folder.path()).argument("--remote-names=up").argument("--pull-ticker-duration=1s");
    let server = launch.argument("--auto-compaction-retention=1h").start().await;
    let client = server.client().await;
    let stop = AtomicBool::new(false);
    let load = async {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            client.put(put(&key(number), &value(number))).await.ok();
            number += 1;
        }
        number
    };
    let check = async {
        for name in TASKS {
            panics(&server, &points, name).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (written, ()) = tokio::join!(load, check);
    let tasks = status(&server).await.branches.remove(0).tasks;
    assert_eq!(tasks.values().map(|task| (task.restarts, task.down)).collect::<Vec<_>>(), [(1, false); TASKS.len()]);
    holds(&server.client().await, 0..written).await;
}

/// Creates a repository with the branch, or with only a remote, in a new folder; returns the folder.
fn with_remote(folder: &Path, upstream: &Path, has_branch: bool) -> PathBuf {
    std::fs::create_dir(folder).expect("the folder is new");
    let path = folder.join("repo.git");
    if has_branch {
        Repository::init(&path);
    } else {
        git2::Repository::init_bare(&path).expect("the folder is writable");
    }
    Repository::at(&path).git(&["remote", "add", "origin", &upstream.display().to_string()]);
    folder.to_owned()
}

#[tokio::test]
async fn tasks_of_a_lease_and_of_a_git_host_are_started_again_too() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, points) = launch(folder.path());
    let upstream = folder.path().join("upstream.git");
    git2::Repository::init_bare(&upstream).unwrap();
    let url = format!("http://127.0.0.1:{}", free_port());
    let launch = launch.folder(&with_remote(&folder.path().join("one"), &upstream, true));
    let launch = launch.argument("--writer-lease=20s").argument("--pull-ticker-duration=1s");
    let launch = launch.argument(format!("--host-listen-urls={url}"));
    let pages = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let server = launch.argument(format!("--listen-metrics-urls=http://{pages}")).start().await;
    let client = server.client().await;
    write(&client, 0..5).await;
    for name in ["writer-lease", "lease-renewal", "host-listener", "status-listener"] {
        panics(&server, &points, name).await;
    }
    assert_eq!(http::fetch(pages, "/status").await.expect("it listens").0, 200);
    let branch = status(&server).await.branches.remove(0);
    let lease = branch.lease.expect("the branch has a lease");
    assert_eq!((&*branch.role, lease.epoch, lease.error), ("writer", 1, None));
    // The connection from before is still good.
    write(&client, 5..10).await;
    for number in 0..10 {
        let found = client.range(get(&key(number))).await.ok();
        assert_eq!(found.kvs[0].value, value(number));
    }
    // The host answers on its port. A panic fails one request only.
    let list = || server.repository().run(&["ls-remote", &format!("{url}/repo.git"), DATA]);
    assert!(list().status.success());
    std::fs::write(points.join("find the repository"), "").unwrap();
    assert!(!list().status.success());
    let found = list();
    assert!(found.status.success() && !found.stdout.is_empty(), "{found:?}");
    assert_eq!(server.answer("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_server_that_cannot_renew_its_lease_refuses_writes_with_the_reason_and_another_one_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, points) = launch(folder.path());
    let upstream = folder.path().join("upstream.git");
    git2::Repository::init_bare(&upstream).unwrap();
    let arguments = ["--writer-lease=2s", "--pull-ticker-duration=300ms"];
    let with = |launch: Launch| arguments.into_iter().fold(launch, Launch::argument);
    let one = launch.folder(&with_remote(&folder.path().join("one"), &upstream, true));
    let one = with(one).start().await;
    write(&one.client().await, 0..5).await;
    eventually("the push", async || {
        let branch = status(&one).await.branches.remove(0);
        let pushed = branch.remotes[0].known.pushed.as_ref();
        (branch.commit_lag_revisions == 0 && pushed == Some(&branch.head)).then_some(())
    })
    .await;
    let other = with_remote(&folder.path().join("other"), &upstream, false);
    let mut other = with(Launch::new(Kind::Gitcd).folder(&other)).spawn();
    eventually("a waiting server", async || other.output().contains("ready to take over").then_some(())).await;

    let reason = eventually("the reason", async || {
        // Whenever the renewal is started again, it panics again; the pauses grow beyond the lease's duration.
        std::fs::write(points.join("lease-renewal"), "").expect("the folder exists");
        let (_, page) = one.try_answer("/status").await?;
        let mut status: Status = serde_json::from_str(&page).ok()?;
        status.branches.remove(0).writes_refused.filter(|reason| reason.contains("panicked"))
    });
    let reason = reason.await;
    assert!(reason.contains("the renewal of the writer lease panicked (fail point lease-renewal)"), "{reason}");
    other.ready().await;
    let found = other.client().await.range(get(&key(0))).await.ok();
    assert_eq!(found.kvs[0].value, value(0));
    let (code, answer) = one.answer("/readyz").await;
    assert!(code == 503 && answer.contains("the renewal of the writer lease panicked"), "{code} {answer}");
    let refused = one.client().await.put(put(&key(9), "{}")).await.result();
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_panic_in_a_start_is_an_error_that_names_the_step_and_one_in_a_page_fails_that_page_only() {
    let folder = tempfile::tempdir().unwrap();
    let (launch, points) = launch(folder.path());
    let step = "recover the branch";
    std::fs::write(points.join(step), "").unwrap();
    let mut server = launch.spawn();
    let exit = server.exit().await;
    let words = format!("cannot {step}: internal error: fail point {step}");
    assert!(exit.status.code() == Some(1) && exit.output.contains(&words), "{exit:?}");
    server.restart().await;
    for (page, work) in [("/metrics", "collect the metrics"), ("/status", "collect the status")] {
        std::fs::write(points.join(work), "").unwrap();
        let (code, answer) = server.answer(page).await;
        assert!(code == 500 && answer.contains(&format!("cannot {work}: internal error")), "{page}: {code} {answer}");
        assert_eq!(server.answer(page).await.0, 200, "{page}");
    }
    write(&server.client().await, 0..5).await;
    holds(&server.client().await, 0..5).await;
}

/// Makes a task panic; waits until that is seen everywhere, and until the task is back.
async fn panics(server: &Server, points: &Path, name: &str) {
    std::fs::write(points.join(name), "").expect("the folder exists");
    let problem = eventually("a failing health check", async || {
        let (code, answer) = server.answer("/readyz").await;
        (code == 503).then_some(answer)
    });
    let problem = problem.await;
    assert!(problem.contains("[-]internal_tasks failed: ") && problem.contains(name), "{problem}");
    let report = status(server).await.branches.remove(0).tasks.remove(name);
    assert_eq!(report.map(|task| task.error), Some(format!("fail point {name}")));
    let metric = format!("\ngitcd_task_restarts_total{{task=\"{name}\"}} 1");
    eventually("the restart", async || server.page("/metrics").await.contains(&metric).then_some(())).await;
    eventually("a healthy server", async || (server.answer("/readyz").await.0 == 200).then_some(())).await;
    assert!(!points.join(name).exists());
}

#[tokio::test]
async fn a_store_whose_writer_or_committer_panics_refuses_writes_with_the_reason_and_loses_nothing() {
    for name in ["writer", "committer"] {
        let folder = tempfile::tempdir().unwrap();
        let (launch, points) = launch(folder.path());
        let mut server = launch.start().await;
        let client = server.client().await;
        write(&client, 0..10).await;
        std::fs::write(points.join(name), "").unwrap();
        // The thread passes its fail point with the next write.
        let refused = eventually("a refused write", async || {
            let answer = client.put(put("/registry/tests/default/last", "{}")).await.result();
            answer.err().map(|status| status.message().to_owned())
        });
        let refused = refused.await;
        // A request fails a moment before the thread has recorded its end.
        let reason = eventually("the reason", async || status(&server).await.branches.remove(0).writes_refused).await;
        assert!(reason.contains(&format!("the {name}")) && reason.contains("panicked"), "{name}: {refused}: {reason}");
        assert_eq!(server.answer("/readyz").await.0, 503, "{name}");
        server.kill();
        server.restart().await;
        holds(&server.client().await, 0..10).await;
        server.repository().fsck();
    }
}
