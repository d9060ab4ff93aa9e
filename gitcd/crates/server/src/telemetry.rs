//! Traces for a collector: what a request waits for, and what becomes of its writes.
//!
//! A request's span continues the trace of its client. The journal write that it waits for is a child of it, and linked to the
//! other requests that wait for the same one. What becomes Git is a trace of its own: `git.pack` with the commits in
//! it and their flush.
//!
//! Off unless somebody asks for it, and then nothing but a look at one flag is paid for it. The spans are `tracing`'s,
//! with the target [`TARGET`]; only the feature `otlp` has what brings them to a collector.

#[cfg(feature = "otlp")]
mod exporter;
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

/// What a subscriber needs to bring spans to a collector; it belongs right on the registry.
pub type Layer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

/// Gives every gRPC request of a branch a span, if anybody wants spans.
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
    use super::settings::environment;
    use super::{Layer, Settings, SetupError};

    /// Nothing: this program was built without traces.
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

    /// Refuses what this program was built without.
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
