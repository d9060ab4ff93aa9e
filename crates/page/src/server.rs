//! The server: its address, and the routes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use gitcd_repo::git_dir;
use gitcd_repo::watch::{RefWatcher, WatchError};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::app::App;
use crate::health::HealthReader;
use crate::services::Services;
use crate::session::Session;
use crate::settings::Settings;
use crate::work::Work;
use crate::{events, guard, health_pages, pages, undo_pages, view};

/// Bytes of a form.
const BODY: usize = 8 << 10;

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is on the network.
    #[error("{0} is not a loopback address, and the page has no TLS: listen on 127.0.0.1, and use `ssh -L`")]
    Exposed(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}; set another --listen, or port 0 for any free port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The references cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The branch cannot be read.
    #[error("{0}")]
    Branch(String),
    /// The system has no random numbers.
    #[error("cannot read random bytes for the login token: {0}")]
    Random(String),
}

/// The page, bound to an address.
pub struct Page {
    listener: TcpListener,
    router: Router,
    url: String,
}

impl Page {
    /// Binds the page to a loopback address; port 0 for any free port. Checks that the branch can be read.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(settings: Settings, services: Services, address: SocketAddr) -> Result<Self, StartError> {
        if !address.ip().is_loopback() {
            return Err(StartError::Exposed(address));
        }
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let settings = Arc::new(settings);
        let work = Work::new();
        let branch = settings.clone();
        let opened = work.run(move |deadline| crate::read::Branch::open(&branch, &deadline).map(drop)).await;
        opened.map_err(|problem| StartError::Branch(problem.to_string()))?;
        let names = [settings.branch.data_reference.clone(), settings.branch.metadata_reference.clone()];
        let folder = git_dir(&settings.branch.repository);
        let watcher = RefWatcher::new(&folder, move |name| names.iter().any(|other| other == name))?;
        let random = |error: rand::rand_core::OsError| StartError::Random(error.to_string());
        let (session, token) = Session::new(bound.port()).map_err(random)?;
        let host = if bound.is_ipv6() { format!("[{}]", bound.ip()) } else { bound.ip().to_string() };
        let url = format!("http://{host}:{}/?token={token}", bound.port());
        let streams = Arc::new(Semaphore::new(events::STREAMS));
        let Services { rights, undo, health } = services;
        let health = health.map(HealthReader::new);
        let app = App { settings, rights, undo, health, session, watcher, work, streams, host };
        Ok(Self { listener, router: router(Arc::new(app)), url })
    }

    /// Returns the URL to open, with a token that works once.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves until the future is dropped.
    ///
    /// # Errors
    /// The system's error.
    pub async fn serve(self) -> io::Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until `stopped` is ready, and then until no connection is open; pages that are open have one.
    ///
    /// # Errors
    /// The system's error.
    pub async fn serve_until(self, stopped: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(stopped).await
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(pages::commits))
        .route("/commit/{id}", get(pages::commit))
        .route("/commit/{id}/undo", get(undo_pages::preview).post(undo_pages::apply))
        .route("/object", get(pages::object))
        .route("/object/{*key}", get(pages::object))
        .route("/search", get(pages::search))
        .route("/health", get(health_pages::health))
        .route("/events", get(events::events))
        .route("/page.css", get(view::assets::css))
        .route("/page.js", get(view::assets::script))
        .route("/icon.svg", get(view::assets::icon))
        .fallback(pages::missing)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(app.clone(), guard::check))
        .with_state(app)
}
