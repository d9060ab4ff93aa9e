//! When to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Ready when the process is told to end: by SIGTERM, as Kubernetes does, or by Ctrl-C. For [`Manager::run`](crate::Manager::run).
///
/// From now on these signals do not end the process by themselves. Call it inside the runtime.
///
/// # Errors
/// The system does not deliver signals.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
