//! A server that does only what the workloads need: the limit that a server on this wire can reach.
//!
//! It has gitcd's transport (listener, HTTP/2 settings, inline execution, coalesced writes), gitcd's generated services on
//! tonic, and gitcd's runtime. Behind that it has only what no server can leave out: keys in memory with the versions since the
//! last compaction, a revision for each write, watchers, and one fsync of a log for all writes that wait at the same moment.
//!
//! It cannot recover: nothing reads the log. It has no deletions, leases, users, sorting or filters, and refuses them. gitcd
//! encodes answers of `Range` itself, without tonic, and can be faster there.

mod keys;
mod kv;
mod log;
mod maintenance;
mod store;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gitcd::listener::{Incoming, Network};
use gitcd::proto::etcdserverpb::ResponseHeader;
use gitcd::proto::etcdserverpb::kv_server::KvServer;
use gitcd::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use gitcd::proto::etcdserverpb::watch_server::WatchServer;
use gitcd::transport::{self, Transport};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch as signal};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::codegen::Service;
use tonic::service::Routes;

use self::log::Log;
use self::store::Store;
use self::writer::{Command, QUEUE, Writer};

/// Largest accepted message, as in gitcd and etcd.
const MESSAGE_BYTES: usize = 2 << 20;
/// Stack of a thread, as in gitcd.
const STACK_BYTES: usize = 16 << 20;
/// How long open connections may take to close at a stop.
const DRAIN: Duration = Duration::from_secs(5);
const MEMBER: u64 = 1;

/// Options of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct BareWireOptions {
    /// Address for clients
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,

    /// Folder for the log
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

/// Serves until `stopped`.
///
/// # Errors
/// If the server cannot start, or if the log cannot be written.
pub(crate) fn run(options: &BareWireOptions, stopped: impl Future<Output = Result<()>>) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.thread_stack_size(STACK_BYTES).enable_all().build()?.block_on(async {
        let mut server = BareServer::start(options.listen, &options.data_dir).await?;
        eprintln!("bare-wire listens on {}", server.address());
        tokio::select! {
            asked = stopped => asked?,
            failed = &mut server.writer => return failed.context("the writer panicked")?,
        }
        server.stop().await
    })
}

/// What the services share.
#[derive(Clone, Debug)]
struct Backend {
    store: Arc<Store>,
    writer: mpsc::Sender<Command>,
    stopped: signal::Receiver<bool>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct BareServer {
    stop: signal::Sender<bool>,
    serving: JoinHandle<()>,
    writer: JoinHandle<Result<()>>,
    address: SocketAddr,
}

impl BareServer {
    /// Listens with an empty store.
    ///
    /// # Errors
    /// If it cannot listen or create the log; the message names the address or the folder.
    pub(crate) async fn start(address: SocketAddr, folder: &Path) -> Result<Self> {
        let log = Log::create(folder).with_context(|| format!("cannot create a log in {}", folder.display()))?;
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let store = Arc::new(Store::default());
        let (commands, inbox) = mpsc::channel(QUEUE);
        let writer = Writer::new(store.clone(), log);
        let writer = tokio::task::spawn_blocking(move || writer.run(inbox));
        let (stop, stopped) = signal::channel(false);
        let routes = routes(&Backend { store, writer: commands, stopped: stopped.clone() });
        let answer = move |request: hyper::Request<hyper::body::Incoming>| routes.clone().call(request);
        let incoming = Incoming::new(listener, None, Arc::new(Network::default()));
        let serving = tokio::spawn(transport::serve(incoming, Transport::default(), None, answer, stopped));
        Ok(Self { stop, serving, writer, address })
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests in progress, and ends.
    ///
    /// # Errors
    /// If the log could not be written.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.send_replace(true);
        if tokio::time::timeout(DRAIN, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
        // No service can send commands any more.
        self.writer.await.context("the writer panicked")?
    }
}

fn routes(backend: &Backend) -> Routes {
    let mut routes = Routes::builder();
    macro_rules! add {
        ($($server:ident),+) => {
            $(routes.add_service(
                $server::new(backend.clone())
                    .max_decoding_message_size(MESSAGE_BYTES)
                    .max_encoding_message_size(usize::MAX),
            );)+
        };
    }
    add!(KvServer, WatchServer, MaintenanceServer);
    routes.routes().prepare()
}

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader { cluster_id: MEMBER, member_id: MEMBER, revision, raft_term: 1 }
}

/// Refuses what the workloads do not need.
fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("bare-wire does not support {what}: it serves only the workloads of gitcd-bench"))
}
