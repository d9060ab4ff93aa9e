//! Signals that stop the process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that completes on SIGTERM, which Kubernetes sends, or on Ctrl-C. For [`Manager::run`](crate::Manager::run).
///
/// From this call on, these signals do not end the process by themselves. Call it inside the runtime.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
