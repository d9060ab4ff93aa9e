//! What a long-running program needs, whatever it serves. Nothing is enabled by default.
//!
//! | module | feature | content |
//! |---|---|---|
//! | [`endpoint`] | `endpoint` | a server that a command line names, with the flags of TLS files |
//! | [`error`] | | an error with its causes, on one line |
//! | [`plain_http`] | | which URLs are not encrypted on the network |
//! | [`throttle`] | | a limit on log lines that repeat |
//! | [`exposition`] | `exposition` | the text formats of metrics, and the choice between them |
//! | [`http`] | `http` | a client for requests with one response each |
//! | [`log_lines`] | `log-lines` | log lines for people, or as JSON for programs |
//! | [`otlp`] | `otlp` | export of spans to a collector, by OpenTelemetry's environment variables |
//! | [`otlp::Collector`] | `otlp-settings` | only whether these variables enable the export, and where to |
//! | [`tls`] | `tls` | certificates of servers, reloaded when their files change, and TLS settings of clients |

#[cfg(feature = "endpoint")]
pub mod endpoint;
pub mod error;
#[cfg(feature = "exposition")]
pub mod exposition;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "log-lines")]
pub mod log_lines;
#[cfg(feature = "otlp-settings")]
pub mod otlp;
pub mod plain_http;
pub mod throttle;
#[cfg(feature = "tls")]
pub mod tls;

/// The example of the README.
#[cfg(all(doctest, feature = "http", feature = "tls"))]
#[doc = include_str!("../README.md")]
struct Readme;
