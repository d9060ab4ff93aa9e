//! Supervision of background tasks: a task that panics is reported and started again.
//!
//! A panic is a bug, but the server survives it: clients are served, and the task runs again after a pause that doubles with every
//! failure. A stop of the server ends the pause, and the task is not started again. While it is paused, health endpoints fail; the status and the metrics show how often it happened. Threads that own
//! state which a panic may have left inconsistent (the writer, the committer) are not restarted: they poison the store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use gitcd_core::supervisor::Supervisor;
//!
//! let (supervisor, (_stop, stopped)) = (Supervisor::default(), tokio::sync::watch::channel(false));
//! supervisor.spawn("maintenance", stopped, || async { /* until the server stops */ }).await.unwrap();
//! assert!(supervisor.statuses().iter().all(|(name, task)| *name == "maintenance" && task.restarts == 0));
//! # }
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The pause before the first restart. Long enough for a health check to see it.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between restarts.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A task that has run for this long starts over with the first pause.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// The background tasks of a server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    tasks: Tasks,
    /// The tasks of the process, which all its servers report.
    shared: Tasks,
}

/// The state of tasks, by name.
type Tasks = Arc<Mutex<BTreeMap<&'static str, TaskStatus>>>;

/// The state of a background task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskStatus {
    /// How often it was started again after a panic.
    pub restarts: u64,
    /// The message of the latest panic.
    pub error: Option<String>,
    /// Whether it is not running, and will be started again.
    pub is_down: bool,
}

impl Supervisor {
    /// Returns the supervisor of one server. It also reports the tasks of `process`, which belong to no server.
    pub fn within(process: &Self) -> Self {
        Self { tasks: Tasks::default(), shared: process.tasks.clone() }
    }

    /// Runs a task, and runs it again whenever it panics, until `stopped`. A task that returns has ended, and ends by itself when
    /// the server stops. Aborting the handle aborts the task.
    pub fn spawn<F>(
        &self,
        name: &'static str,
        stopped: watch::Receiver<bool>,
        start: impl Fn() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.run(FIRST_PAUSE, name, stopped, start))
    }

    /// Does the same in the task of the caller; `first` is the pause before the first restart. Dropping the future aborts the task.
    pub fn run<S, F>(
        &self,
        first: Duration,
        name: &'static str,
        mut stopped: watch::Receiver<bool>,
        start: S,
    ) -> impl Future<Output = ()> + Send + use<S, F>
    where
        S: Fn() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let supervisor = self.clone();
        supervisor.update(name, |_| {});
        async move {
            let mut pause = first;
            loop {
                let started = Instant::now();
                let mut running = JoinSet::new();
                let task = start();
                running.spawn(async move {
                    tokio::select! {
                        () = task => {}
                        () = fail_point::reached(name) => panic!("fail point {name}"),
                    }
                });
                let Some(Err(failure)) = running.join_next().await else { return };
                let Ok(panic) = failure.try_into_panic() else { return };
                if started.elapsed() >= HEALTHY_AFTER {
                    pause = first;
                }
                let message = panic_message(&*panic);
                tracing::error!(
                    task = name,
                    error = message,
                    "an internal task panicked; starting it again in {pause:?}, unless the server stops"
                );
                supervisor.update(name, |task| (task.error, task.is_down) = (Some(message), true));
                tokio::select! {
                    biased;
                    () = stop(&mut stopped) => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(MAX_PAUSE);
                supervisor.update(name, |task| (task.restarts, task.is_down) = (task.restarts + 1, false));
            }
        }
    }

    /// Returns the tasks by name.
    pub fn statuses(&self) -> BTreeMap<&'static str, TaskStatus> {
        let read = |tasks: &Tasks| tasks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = read(&self.shared);
        all.extend(read(&self.tasks));
        all
    }

    /// Returns why a task is down, if it is.
    pub fn failure(&self, name: &str) -> Option<String> {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.get(name).filter(|task| task.is_down).map(|task| task.error.clone().unwrap_or_default())
    }

    /// Returns which tasks are down, with their errors; `None` if all are running.
    pub fn problem(&self) -> Option<String> {
        let statuses = self.statuses();
        let down = statuses.iter().filter(|(_, task)| task.is_down);
        let down = down.map(|(name, task)| format!("{name}: {}", task.error.as_deref().unwrap_or_default()));
        let down = down.collect::<Vec<_>>().join("; ");
        (!down.is_empty()).then(|| format!("internal tasks have panicked and are being restarted: {down}"))
    }

    fn update(&self, name: &'static str, change: impl FnOnce(&mut TaskStatus)) {
        change(self.tasks.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default());
    }
}

/// Waits for the stop; for ever if its sender is gone.
async fn stop(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Fail points: places where a test makes a debug build panic, by creating a file with the name of the place in the folder
/// `$GITCD_FAIL_POINTS`. The place removes the file and panics. Release builds have none.
pub mod fail_point {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::time::Duration;

    /// How often a fail point of a task looks for its file.
    const POLL: Duration = Duration::from_millis(50);

    fn file(name: &str) -> Option<PathBuf> {
        static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
        let folder = FOLDER.get_or_init(|| std::env::var_os("GITCD_FAIL_POINTS").map(PathBuf::from));
        if cfg!(debug_assertions) { Some(folder.as_ref()?.join(name)) } else { None }
    }

    /// Panics if a test has created the file of this place.
    ///
    /// # Panics
    /// If a test wants it.
    pub fn pass(name: &str) {
        if let Some(file) = file(name)
            && std::fs::remove_file(file).is_ok()
        {
            panic!("fail point {name}");
        }
    }

    /// Waits until a test creates the file of this place.
    pub(super) async fn reached(name: &str) {
        let Some(file) = file(name) else { return std::future::pending().await };
        while std::fs::remove_file(&file).is_err() {
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Returns a receiver of a stop that never comes.
    fn never() -> watch::Receiver<bool> {
        watch::channel(false).1
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_reported_and_started_again_until_it_returns() {
        let supervisor = Supervisor::default();
        let runs = Arc::new(AtomicU32::new(0));
        let task = supervisor.spawn("task", never(), {
            let runs = runs.clone();
            move || {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                async move { assert!(run >= 2, "run {run}") }
            }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let problem = supervisor.problem().expect("the task is down");
        assert!(problem.ends_with("task: run 0"), "{problem}");
        task.await.unwrap();
        assert_eq!((runs.load(Ordering::Relaxed), supervisor.problem()), (3, None));
        let status = TaskStatus { restarts: 2, error: Some("run 1".to_owned()), is_down: false };
        assert_eq!(supervisor.statuses(), BTreeMap::from([("task", status)]));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_the_process_are_reported_by_each_of_its_servers() {
        let process = Supervisor::default();
        let (one, other) = (Supervisor::within(&process), Supervisor::within(&process));
        one.spawn("own", never(), || async {}).await.unwrap();
        let is_sound = false;
        let down = move || async move { assert!(is_sound, "down") };
        let shared = tokio::spawn(process.run(Duration::from_millis(200), "shared", never(), down));
        tokio::time::sleep(Duration::from_millis(100)).await;
        for server in [&one, &other] {
            let problem = server.problem().expect("the task of the process is down");
            assert!(problem.ends_with("shared: down"), "{problem}");
        }
        assert_eq!((process.failure("shared"), one.failure("shared")), (Some("down".to_owned()), None));
        assert_eq!(other.statuses().into_keys().collect::<Vec<_>>(), ["shared"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(one.statuses()["shared"].restarts, 1);
        shared.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_task_is_not_started_again() {
        struct Dropped(tokio::sync::mpsc::Sender<()>);
        let (sender, mut ended) = tokio::sync::mpsc::channel(1);
        let supervisor = Supervisor::default();
        let task = supervisor.spawn("task", never(), move || {
            let held = Dropped(sender.clone());
            async move {
                let _held = &held.0;
                std::future::pending::<()>().await;
            }
        });
        tokio::task::yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        // All senders are dropped with the task.
        assert_eq!(ended.recv().await, None);
        assert_eq!(supervisor.statuses()["task"], TaskStatus::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_pause_and_the_task_is_not_started_again() {
        let (supervisor, (stop, stopped)) = (Supervisor::default(), watch::channel(false));
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let task = supervisor.spawn("task", stopped, move || {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move { panic!("run {run}") }
        });
        // In the longest pause.
        tokio::time::sleep(Duration::from_mins(3)).await;
        let before = runs.load(Ordering::Relaxed);
        assert!(supervisor.problem().is_some());
        let asked = tokio::time::Instant::now();
        stop.send_replace(true);
        task.await.unwrap();
        assert_eq!((asked.elapsed(), runs.load(Ordering::Relaxed)), (Duration::ZERO, before));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_after_the_stop_is_not_started_again() {
        let (supervisor, (stop, stopped)) = (Supervisor::default(), watch::channel(false));
        let asked = stopped.clone();
        let task = supervisor.spawn("task", stopped, move || {
            let mut asked = asked.clone();
            async move {
                let is_stopped = asked.wait_for(|stopped| *stopped).await.is_ok_and(|stopped| *stopped);
                assert!(!is_stopped, "at the stop");
            }
        });
        tokio::task::yield_now().await;
        stop.send_replace(true);
        task.await.unwrap();
        assert_eq!(supervisor.statuses()["task"].restarts, 0);
    }
}
