//! gitcd in this process, on a thread of its own, because the runtime of a test ends before a shared cluster does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;

use ::gitcd::config::{Branches, DEFAULT_PEER_URL, listen_urls};
use ::gitcd::recovery::{self, Beginning};
use ::gitcd::server::{Config, Server};
use ::gitcd::telemetry;
use tokio::sync::oneshot;
use tracing::dispatcher::set_default;
use tracing_subscriber::layer::SubscriberExt;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A running gitcd; stopped when dropped.
#[derive(Debug)]
pub(crate) struct InProcess {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl InProcess {
    /// Serves a new branch in the repository `folder` on a free loopback port. Exports the spans of its requests to `collector`.
    pub(crate) fn start(folder: &Path, collector: Option<SocketAddr>) -> Result<Self, Failure> {
        let config = config(folder)?;
        let (started, start) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("testkit-gitcd".to_owned()).spawn(move || {
            if let Err(error) = run(config, collector, &started, stopped) {
                let _nobody_waits = started.send(Err(error));
            }
        })?;
        let address = start.recv()??;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns its URL, for `--etcd-servers`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic is already in the test's output.
            let _panicked = thread.join();
        }
    }
}

fn run(
    config: Config,
    collector: Option<SocketAddr>,
    started: &mpsc::Sender<Result<SocketAddr, Failure>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let runtime = |workers| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        builder
    };
    let Some(collector) = collector else {
        runtime(2).build()?.block_on(serve(config, started, stopped));
        return Ok(());
    };
    // A subscriber of its own, on its own threads: the test may install another one for its spans.
    let sending = runtime(1).build()?;
    let settings = telemetry::Settings { enabled: true, address: Some(collector.to_string()), ..Default::default() };
    let traces = sending.block_on(async { telemetry::start(&settings) })?;
    let layer = traces.as_ref().map(telemetry::Traces::layer);
    let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let of_threads = subscriber.clone();
    // Stays installed until the thread ends.
    let serving = runtime(2).on_thread_start(move || std::mem::forget(set_default(&of_threads))).build()?;
    let _of_this_thread = set_default(&subscriber);
    serving.block_on(serve(config, started, stopped));
    if let Some(traces) = traces {
        sending.block_on(traces.end());
    }
    Ok(())
}

async fn serve(config: Config, started: &mpsc::Sender<Result<SocketAddr, Failure>>, stopped: oneshot::Receiver<()>) {
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => return drop(started.send(Err(error.into()))),
    };
    let address = server.addresses().first().copied().ok_or_else(|| Failure::from("gitcd listens nowhere"));
    let _nobody_waits = started.send(address);
    let _dropped = stopped.await;
    // The folder is removed now, so nothing needs to be committed.
    let _uncommitted = server.stop().await;
}

fn config(folder: &Path) -> Result<Config, Failure> {
    let branches = Branches {
        repository: folder.to_owned(),
        prefixes: ::gitcd::config::PerBranch::parse("key-prefixes", "default=/registry")?,
        committer_name: "testkit".to_owned(),
        committer_email: "testkit@localhost".to_owned(),
        ..Branches::default()
    };
    let branch = branches.branch(::gitcd::config::DEFAULT_NAME);
    recovery::init(&branch, Beginning::default())?;
    Ok(Config {
        listen: listen_urls("listen-urls", "http://127.0.0.1:0")?,
        advertise_peer: vec![DEFAULT_PEER_URL.to_owned()],
        ..Config::new(branch)
    })
}
