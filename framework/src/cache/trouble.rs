//! Whether a watch delivers events.

use tokio::sync::{Notify, watch};

/// Health of one watch.
#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    /// Failures since it last delivered something.
    failures: watch::Sender<u32>,
    hurry: Notify,
}

impl WatchHealth {
    /// Records that the watch delivered something.
    pub(super) fn is_over(&self) {
        self.failures.send_if_modified(|failures| std::mem::take(failures) > 0);
    }

    pub(super) fn failed(&self) {
        self.failures.send_modify(|failures| *failures = failures.saturating_add(1));
    }

    /// Completes when a current list is needed.
    pub(super) async fn hurry(&self) {
        self.hurry.notified().await;
    }

    /// If the watch has failed and delivered nothing since, makes it list immediately. Completes when that has succeeded or
    /// failed.
    pub(super) async fn catch_up(&self) {
        let mut failures = self.failures.subscribe();
        let before = *failures.borrow_and_update();
        if before > 0 {
            self.hurry.notify_one();
            // Cannot fail: we own the sender.
            let _changed = failures.wait_for(|failures| *failures != before).await;
        }
    }
}
