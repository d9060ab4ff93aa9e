//! How long a controller may act.

use tokio::sync::watch;

/// The period from acquiring the lease until it is lost, or the manager stops.
///
/// What a reconcile starts in the background has to end with it: requests of its [client](crate::Context::client) fail
/// then, but a task would go on.
///
/// ```
/// use trishanku_framework::Context;
///
/// async fn measure() { /* asks a pump every ten seconds, for ever */ }
///
/// fn start(context: &Context) {
///     let term = context.term.clone();
///     tokio::spawn(async move {
///         tokio::select! {
///             () = measure() => {}
///             () = term.ended() => {}
///         }
///     });
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Term(watch::Receiver<()>);

/// Ends a term when it is dropped.
#[derive(Debug)]
pub(super) struct Acting(watch::Sender<()>);

impl Acting {
    pub(super) fn begin() -> Self {
        Self(watch::channel(()).0)
    }

    pub(super) fn term(&self) -> Term {
        Term(self.0.subscribe())
    }
}

impl Term {
    /// Waits until the term has ended.
    pub async fn ended(&self) {
        let mut open = self.0.clone();
        while open.changed().await.is_ok() {}
    }

    /// Returns whether the term has ended.
    pub fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }
}
