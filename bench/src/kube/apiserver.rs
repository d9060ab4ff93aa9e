//! A kube-apiserver in front of a store, started as `trishanku up` starts it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use trishanku::plane::components::Blueprint;
use trishanku::plane::ports::{Allotted, Ports, Reservations};
use trishanku::plane::state::{Form, Settings, Store};
use trishanku::plane::{Assets, Home, certs};

use super::http::Http;
use crate::child::Child;
use crate::server::Kind;
use crate::target::Target;

const READY_LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);
/// Limits that are never reached, so that no request is rejected or queued.
const LIMITS: [&str; 2] = ["--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000"];

/// A running kube-apiserver; killed on drop, and its folder removed.
pub(crate) struct ApiServer {
    /// Connections to it.
    pub(crate) http: Http,
    // Dropped before the folder.
    process: Child,
    _folder: TempDir,
    _reservations: Reservations,
}

impl ApiServer {
    /// Starts a kube-apiserver on this store and waits until it is ready.
    ///
    /// # Errors
    /// If it exits or is not ready within a minute; the message has the end of its output.
    pub(crate) async fn start(
        assets: &Assets,
        target: &Target,
        data: &Path,
        media_type: &str,
        connections: usize,
    ) -> Result<Self> {
        let label = &target.server.label;
        let folder = tempfile::Builder::new().prefix(&format!("kube-on-{label}-")).tempdir_in(data)?;
        let home = Home::at(folder.path());
        home.create()?;
        certs::ensure(&home.keys(), SystemTime::now().into())?;
        let Allotted { ports, reservations, .. } = Ports::choose(None).context("no free ports")?;
        let ports = Ports { store: target.server.address().port(), ..ports };
        let store = match target.server.kind {
            Kind::Gitcd => Store::Gitcd,
            Kind::Etcd => Store::Etcd,
            Kind::BareWire => bail!("kube-apiserver requires more than bare-wire serves"),
        };
        let settings = Settings { store, storage_media_type: media_type.to_owned(), form: Form::Central, audit: false };
        // The store's program is not started from here.
        let blueprint = Blueprint { home: &home, assets, store: Path::new(""), ports, settings: &settings };
        let component = blueprint.components().into_iter().find(|component| component.name == "kube-apiserver");
        let component = component.context("the control plane has no kube-apiserver")?;
        let mut command = Command::new(&component.run.program);
        // Both stores are measured without TLS, here as elsewhere: else TLS would be measured, too.
        let of_store = |arg: &&OsString| arg.as_encoded_bytes().starts_with(b"--etcd-");
        command.args(component.run.args.iter().filter(|arg| !of_store(arg))).args(LIMITS);
        command.arg(format!("--etcd-servers=http://{}", target.server.address()));
        let mut process = Child::start(&mut command, &component.log)?;
        let http = Http::new(&home.keys(), ports.apiserver, connections)?;
        let start = Instant::now();
        loop {
            if let Some(status) = process.ended()? {
                bail!("kube-apiserver on {label} exited at startup ({status}):\n{}", process.last_words());
            }
            let refused = match http.connect().await {
                Ok(()) => match http.get(0, "/readyz").await {
                    Ok(_) => return Ok(Self { http, process, _folder: folder, _reservations: reservations }),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if start.elapsed() > READY_LIMIT {
                let said = process.last_words();
                return Err(refused.context(format!("kube-apiserver on {label} is not ready:\n{said}")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it and removes its folder.
    ///
    /// # Errors
    /// If it does not exit in time and is killed.
    pub(crate) async fn stop(mut self) -> Result<()> {
        // Its graceful shutdown waits for clients.
        self.http.disconnect().await;
        self.process.stop().await.context("kube-apiserver did not stop")?;
        Ok(())
    }
}
