//! The page on a branch, which can stop.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::services::Scripted;
use crate::world::{Served, World};

/// How long requests in progress may take at the end.
const LIMIT: Duration = Duration::from_secs(10);

/// The page on the first branch of a world.
pub(crate) struct Stage {
    address: String,
    pub(crate) scripted: Scripted,
    running: Option<(Runtime, Served)>,
}

impl Stage {
    /// Serves the page.
    pub(crate) fn new(world: &World) -> Self {
        let mut stage = Self { address: "127.0.0.1:0".to_owned(), scripted: Scripted::default(), running: None };
        stage.start(world);
        stage
    }

    /// Serves the page, at the address that it had before.
    pub(crate) fn start(&mut self, world: &World) {
        let runtime = Runtime::new().expect("threads can be started");
        let served = runtime.block_on(world.serve_with(self.scripted.services(), &self.address));
        self.address.clone_from(&served.address);
        self.running = Some((runtime, served));
    }

    /// Stops the page, and closes its connections.
    pub(crate) fn stop(&mut self) {
        if let Some((runtime, served)) = self.running.take() {
            drop(served);
            runtime.shutdown_timeout(LIMIT);
        }
    }

    /// Returns the URL that is printed.
    pub(crate) fn url(&self) -> String {
        let (_, served) = self.running.as_ref().expect("the page is served");
        format!("http://{}{}", served.address, served.login)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop();
    }
}
