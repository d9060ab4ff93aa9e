//! Whether a watch tells what happens.

use tokio::sync::{Notify, watch};

/// What is known of the connection of one watch.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// How often it failed since it told something.
    failures: watch::Sender<u32>,
    hurry: Notify,
}

impl Trouble {
    /// It told something.
    pub(super) fn is_over(&self) {
        self.failures.send_if_modified(|failures| std::mem::take(failures) > 0);
    }

    pub(super) fn failed(&self) {
        self.failures.send_modify(|failures| *failures = failures.saturating_add(1));
    }

    /// Ready when somebody wants to know what is there now.
    pub(super) async fn hurry(&self) {
        self.hurry.notified().await;
    }

    /// If the watch has failed and not told anything since, has it listed at once; ready when that has succeeded or failed.
    pub(super) async fn catch_up(&self) {
        let mut failures = self.failures.subscribe();
        let before = *failures.borrow_and_update();
        if before > 0 {
            self.hurry.notify_one();
            // The sender is ours.
            let _changed = failures.wait_for(|failures| *failures != before).await;
        }
    }
}
