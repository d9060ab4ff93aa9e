//! Blocking work for async tasks: it runs on a thread for such work, and a panic is an error of the caller.
//!
//! A panic is a bug. It fails only the request, or the start, that needed the work. In debug builds, every piece of work has a
//! [fail point](crate::supervisor::fail_point) of its name.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use gitcd_core::blocking;
//!
//! let read = blocking::run("read the hosts file", || std::fs::read_to_string("/etc/hosts")).await;
//! assert!(read.is_ok());
//! let error = blocking::run("divide", || -> u64 { panic!("by zero") }).await.unwrap_err();
//! assert!(error.to_string().starts_with("cannot divide: internal error: by zero"));
//! # }
//! ```

use std::any::Any;

use tokio::task::JoinError;

use crate::supervisor::{fail_point, panic_message};

/// Why work has no result: it panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: internal error: {message}; this is a bug of gitcd, please report it with the log")]
pub struct Panicked {
    /// The work, as the end of a sentence that starts with "cannot".
    pub what: &'static str,
    /// The message of the panic.
    pub message: String,
}

impl Panicked {
    /// Returns the error for a caught panic.
    pub fn of(what: &'static str, panic: &(dyn Any + Send)) -> Self {
        Self { what, message: panic_message(panic) }
    }

    /// Returns the error for a task without a result.
    pub fn of_task(what: &'static str, error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => Self::of(what, &*panic),
            Err(error) => Self { what, message: error.to_string() },
        }
    }
}

/// Runs blocking work on a thread for such work, and returns its result. `what` is the end of a sentence that starts with "cannot".
/// If the caller is dropped, work that was started continues.
///
/// # Errors
/// [`Panicked`].
pub async fn run<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    let done = tokio::task::spawn_blocking(move || {
        fail_point::pass(what);
        work()
    });
    match done.await {
        // The work was cancelled, because the runtime shuts down: it drops this task next.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        done => done.map_err(|error| Panicked::of_task(what, error)),
    }
}
