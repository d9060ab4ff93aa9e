//! How commands that run servers stop: by a signal, or by an error.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The stop of a command: SIGTERM and SIGINT request it at any moment, also while a server starts.
pub(super) struct Stop(watch::Sender<bool>);

impl Stop {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn by_signal() -> std::io::Result<Self> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = watch::Sender::new(false);
        let requested = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            requested.send_replace(true);
        });
        Ok(Self(stop))
    }

    /// Requests the stop.
    pub(super) fn request(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns a receiver that becomes true at the stop.
    pub(super) fn receiver(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Waits for the stop.
    pub(super) async fn requested(&self) {
        // The sender is not dropped meanwhile.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}

/// The outcome of a command with several servers: its first error, which the program prints when it exits. Later errors are
/// logged.
#[derive(Debug, Default)]
pub(super) struct Outcome(Option<anyhow::Error>);

impl Outcome {
    pub(super) fn is_ok(&self) -> bool {
        self.0.is_none()
    }

    /// Records an error.
    pub(super) fn fail(&mut self, error: anyhow::Error) {
        if self.0.is_some() {
            tracing::error!("{error:#}");
        } else {
            self.0 = Some(error);
        }
    }

    /// Returns the first error.
    ///
    /// # Errors
    /// It.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_error_is_the_outcome_and_all_others_are_logged() {
        let log = Log::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || lines.clone()).finish();
        let outcome = tracing::subscriber::with_default(subscriber, || {
            let mut outcome = Outcome::default();
            assert!(outcome.is_ok());
            for name in ["one", "two", "three"] {
                outcome.fail(anyhow::anyhow!("the disk is full").context(format!("branch {name:?}")));
            }
            outcome
        });
        assert!(!outcome.is_ok());
        assert_eq!(format!("{:#}", outcome.end().unwrap_err()), "branch \"one\": the disk is full");
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let logged = ["one", "two", "three"].map(|name| log.contains(&format!("branch \"{name}\": the disk is full")));
        assert_eq!(logged, [false, true, true], "{log}");
    }
}
