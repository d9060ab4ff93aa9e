//! Panics of internal tasks are seen, and repaired or final: a task is started again, a broken store refuses writes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gitcd::status::Status;

use super::{holds, key, value, write};
use crate::support::build::put;
use crate::support::{Kind, Launch, Repository, Server, eventually};

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
