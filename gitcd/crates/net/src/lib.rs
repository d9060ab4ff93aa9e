//! The network side of gitcd: listeners, TLS and HTTP connections.
//!
//! [`listener`] accepts connections, plain or with TLS, [`tls`] loads certificates and reloads them when their files change, and
//! [`transport`] serves HTTP/1.1 and HTTP/2 on each connection. Responses to requests that arrived together are sent in one
//! system call. Once the writer's fence is closed, no byte of a response is sent.

pub mod listener;
pub mod transport;

pub use trishanku_service::{throttle, tls};
