//! Traces for a collector: what a request waits for, and how its writes get into Git.
//!
//! A request's span continues the trace of its client. The journal write that it waits for is a child span, linked to the
//! other requests that wait for the same write. Commits have a trace of their own: `git.pack` with the commits in it and their
//! flush.
//!
//! Off by default, at the cost of checking one flag. The spans are `tracing`'s, with the target [`TARGET`]; exporting them
//! needs the feature `otlp`.

#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod request;
mod settings;

use tracing_subscriber::Registry;

pub use self::settings::{Settings, SetupError};
#[cfg(feature = "otlp")]
pub use otlp::{Traces, start};
#[cfg(not(feature = "otlp"))]
pub use without::{Traces, start};

pub use gitcd_core::trace::TARGET;

/// The layer of a subscriber that exports spans; it must be added directly to the registry.
pub type Layer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

/// Gives every gRPC request of a branch a span, if tracing is on.
pub(crate) fn traced(routes: axum::Router, branch: &str) -> axum::Router {
    #[cfg(feature = "otlp")]
    if gitcd_core::trace::on() {
        return request::traced(routes, branch.into());
    }
    let _ = branch;
    routes
}

#[cfg(not(feature = "otlp"))]
mod without {
    use trishanku_service::otlp::environment;

    use super::{Layer, Settings, SetupError};

    /// Traces, which this program was built without.
    #[derive(Debug)]
    pub enum Traces {}

    impl Traces {
        /// Never called.
        pub fn layer(&self) -> Layer {
            match *self {}
        }

        /// Never called.
        pub fn end(self) -> std::future::Ready<()> {
            match self {}
        }
    }

    /// Fails if tracing is enabled, since this program was built without it.
    ///
    /// # Errors
    /// [`SetupError`]
    pub fn start(settings: &Settings) -> Result<Option<Traces>, SetupError> {
        match settings.plan(&environment)? {
            None => Ok(None),
            Some(_) => Err(SetupError("this program was built without the feature \"otlp\"".into())),
        }
    }
}
