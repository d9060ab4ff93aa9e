//! Export of spans to a collector over OTLP (gRPC), with the settings of OpenTelemetry's environment variables.
//!
//! ```
//! use trishanku_service::otlp::{Collector, OtlpError};
//!
//! let variable = |name: &str| (name == "OTEL_TRACES_EXPORTER").then(|| "otlp".to_owned());
//! let collector = Collector::find(None, &variable)?.expect("the variable enables traces");
//! assert_eq!(collector.endpoint(), "http://localhost:4317");
//! // In the runtime: SdkTracerProvider::builder().with_batch_exporter(collector.exporter()?)
//! # Ok::<(), OtlpError>(())
//! ```

mod collector;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod resource;

pub use self::collector::Collector;
#[cfg(feature = "otlp")]
pub use self::exporter::Exporter;
#[cfg(feature = "otlp")]
pub use self::resource::resource;

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// A variable asks for something that is not supported.
    #[error("{variable}={value} is not supported: {instead}")]
    Unsupported {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What to use instead.
        instead: String,
    },
    /// Credentials would be sent unencrypted to another machine.
    #[error(
        "the header {header:?} in {variable} is not sent to {endpoint}, because plain HTTP does not encrypt it: use https://"
    )]
    Unencrypted {
        /// The variable with the headers.
        variable: String,
        /// The header.
        header: String,
        /// The address, without user and password.
        endpoint: String,
    },
    /// A variable names a file that cannot be read.
    #[error("{variable}={path} cannot be read")]
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The collector's address or the certificates are unusable.
    #[error("cannot create an exporter of traces to {endpoint}")]
    Exporter {
        /// The address.
        endpoint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Returns a variable of the process; an empty one counts as unset, as OpenTelemetry requires.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
