//! The network side of gitcd: listeners, TLS and HTTP connections.
//!
//! [`listener`] accepts connections, plain or with TLS, [`tls`] loads certificates and reloads them when their files change, and
//! [`transport`] serves HTTP/1.1 and HTTP/2 on each connection. The answers to requests that arrived together leave in one system
//! call. Once a fence is closed, no byte of an answer leaves any more.

pub mod listener;
pub mod throttle;
pub mod tls;
pub mod transport;
