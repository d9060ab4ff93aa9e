//! What users can see: logs, status, events.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::world::World;

static LOG: LazyLock<Log> = LazyLock::new(Log::default);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Records all logs from now on, including the libraries' most detailed ones.
pub(crate) fn record() {
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE).with_writer(LOG.clone());
    // Another test may have set it already.
    let _begun = subscriber.try_init();
}

/// Checks that no token is visible.
pub(crate) async fn nothing_secret(world: &World) {
    let log = String::from_utf8_lossy(&LOG.0.lock()).into_owned();
    assert!(log.contains("GitHub was asked"), "nothing was recorded");
    let statuses = world.objects().list(&ListParams::default()).await.unwrap();
    let statuses = serde_json::to_string(&statuses.items).unwrap();
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let events = serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    // Invalid tokens are secrets, too.
    for (what, text) in [("the log", &log), ("a status", &statuses), ("an event", &events)] {
        let at = text.find("SecretThatNobodySees");
        assert!(at.is_none(), "{what} has a token: {}", &text[at.unwrap().saturating_sub(300)..at.unwrap() + 40]);
    }
}
