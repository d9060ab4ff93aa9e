//! A watch like a controller's: it resumes from its last revision when the connection breaks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{Cluster, wait};

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The object's resource version.
    pub version: u64,
}

/// What a watch has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The existing objects: names and resource versions, from the list and the events.
    pub objects: BTreeMap<String, u64>,
    /// All events, in the order of arrival.
    pub events: Vec<Event>,
    /// How often the watch resumed after its connection had ended.
    pub resumed: usize,
}

/// A watch that runs in the background until it is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    /// Why the watch cannot continue: a gap, or an invalid event.
    broken: Mutex<Option<String>>,
    connection: Mutex<Option<Child>>,
    stopped: std::sync::atomic::AtomicBool,
}

impl Watch {
    /// Lists `path` (such as `/api/v1/namespaces/x/configmaps`) and watches it from there.
    ///
    /// # Errors
    /// If the list fails.
    pub fn start(cluster: &Arc<Cluster>, path: &str) -> anyhow::Result<Self> {
        let list = cluster.raw(path)?;
        let mut version = version_of(&list)?;
        let shared = Arc::new(Shared::default());
        lock(&shared.seen).objects = objects(&list)?;
        let (cluster, path, theirs) = (cluster.clone(), path.to_owned(), shared.clone());
        let thread = std::thread::spawn(move || {
            while !theirs.is_stopped() {
                match theirs.follow(&cluster, &path, &mut version) {
                    Ok(()) => {}
                    Err(error) => {
                        *lock(&theirs.broken) = Some(format!("{error:#}"));
                        return;
                    }
                }
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Cuts the connection; the watch resumes on a new one.
    pub fn cut(&self) {
        if let Some(child) = &mut *lock(&self.shared.connection) {
            // It may have exited by itself. The thread that reads from it reaps it.
            let _ended = child.kill();
        }
    }

    /// Waits until `enough` accepts what was seen, and returns it.
    ///
    /// # Errors
    /// If that does not happen in time, or the watch cannot continue.
    pub fn wait(&self, what: &str, enough: impl Fn(&Seen) -> bool) -> anyhow::Result<Seen> {
        let seen = wait::until(what, || {
            if let Some(broken) = lock(&self.shared.broken).clone() {
                return Ok(Some(Err(anyhow::anyhow!(broken))));
            }
            let seen = lock(&self.shared.seen).clone();
            Ok(enough(&seen).then_some(Ok(seen)))
        });
        match seen {
            Ok(outcome) => outcome,
            Err(error) => {
                let seen = lock(&self.shared.seen);
                bail!("{error:#}; seen {} events: {:?}", seen.events.len(), seen.events)
            }
        }
    }
}

impl Shared {
    /// Reads one connection until it ends. Failing to connect is no error: the server may be restarting.
    fn follow(&self, cluster: &Cluster, path: &str, version: &mut u64) -> anyhow::Result<()> {
        let url = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        let mut child = cluster
            .kubectl_command()
            .args(["get", "--raw", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("the process has no pipe")?);
        *lock(&self.connection) = Some(child);
        // The watch may have been stopped just before the connection existed.
        if self.is_stopped() {
            self.disconnect();
        }
        for line in lines.lines() {
            // A killed server may stop in the middle of a line; that event is repeated.
            let Ok(event) = serde_json::from_str::<Value>(&line?) else {
                break;
            };
            self.take(&event, version)?;
        }
        self.disconnect();
        lock(&self.seen).resumed += 1;
        Ok(())
    }

    fn take(&self, event: &Value, version: &mut u64) -> anyhow::Result<()> {
        let kind = event["type"].as_str().unwrap_or_default();
        let object = &event["object"];
        if kind == "ERROR" {
            // 410 means that events were lost. Any other error only ends this connection.
            ensure!(object["code"] != 410, "the watch cannot resume: {object}");
            return Ok(());
        }
        let now = version_of(object)?;
        ensure!(now > *version || (kind == "BOOKMARK" && now == *version), "{kind} {now} came after {version}");
        *version = now;
        if kind != "BOOKMARK" {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let mut seen = lock(&self.seen);
            if kind == "DELETED" {
                seen.objects.remove(name);
            } else {
                seen.objects.insert(name.to_owned(), now);
            }
            seen.events.push(Event { kind: kind.into(), name: name.into(), version: now });
        }
        Ok(())
    }

    fn disconnect(&self) {
        if let Some(mut child) = lock(&self.connection).take() {
            // It may have exited by itself.
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stopped.store(true, std::sync::atomic::Ordering::SeqCst);
        self.shared.disconnect();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ended = thread.join();
        }
    }
}

/// The names and resource versions of a list.
///
/// # Errors
/// If it is not a list.
pub fn objects(list: &Value) -> anyhow::Result<BTreeMap<String, u64>> {
    let items = list["items"].as_array().context("the list has no items")?;
    let object =
        |item: &Value| Ok((item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version_of(item)?));
    items.iter().map(object).collect()
}

fn version_of(object: &Value) -> anyhow::Result<u64> {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).with_context(|| format!("no resource version in {object}"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic leaves the data consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
