//! Sources of requests to stop.

use std::io::{self, Read};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use trishanku::plane::supervisor::Stop;

/// Returns the channel of requests to stop: SIGINT, SIGTERM, SIGHUP and, optionally, the end of standard input.
pub(crate) fn requests(until_stdin_closes: bool) -> io::Result<mpsc::Receiver<Stop>> {
    let (sender, receiver) = mpsc::channel(4);
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                // If the channel is full, more requests are waiting than there are degrees of urgency.
                let _already_urgent = sender.try_send(Stop);
            }
        });
    }
    if until_stdin_closes {
        // A plain thread, since the runtime would wait for its own blocking reads at shutdown.
        std::thread::spawn(move || {
            let mut ignored = [0; 256];
            while !matches!(io::stdin().read(&mut ignored), Ok(0) | Err(_)) {}
            let _gone = sender.blocking_send(Stop);
        });
    }
    Ok(receiver)
}
