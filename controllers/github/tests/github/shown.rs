//! What anybody gets to see: logs, statuses, events.

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

/// Keeps everything that is logged from now on, down to the last detail of the libraries.
pub(crate) fn record() {
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE).with_writer(LOG.clone());
    // Another test may have begun.
    let _begun = subscriber.try_init();
}

/// No token is in what there is to see.
pub(crate) async fn nothing_secret(world: &World) {
    let log = String::from_utf8_lossy(&LOG.0.lock()).into_owned();
    assert!(log.contains("GitHub was asked"), "nothing was recorded");
    let statuses = world.objects().list(&ListParams::default()).await.unwrap();
    let statuses = serde_json::to_string(&statuses.items).unwrap();
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let events = serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    // One that is wrong is still somebody's secret.
    for (what, text) in [("the log", &log), ("a status", &statuses), ("an event", &events)] {
        let at = text.find("SecretThatNobodySees");
        assert!(at.is_none(), "{what} has a token: {}", &text[at.unwrap().saturating_sub(300)..at.unwrap() + 40]);
    }
}
