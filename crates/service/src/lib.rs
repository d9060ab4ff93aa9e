//! What a long-running program needs, whatever it serves.
//!
//! | module | feature | content |
//! |---|---|---|
//! | [`error`] | | an error with its causes, on one line |
//! | [`throttle`] | | a limit on log lines that repeat |
//! | [`tls`] | `tls` | certificates of servers, reloaded when their files change |

pub mod error;
pub mod throttle;
#[cfg(feature = "tls")]
pub mod tls;
