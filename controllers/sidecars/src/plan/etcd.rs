//! An etcd for events.

use std::time::Duration;

use trishanku_api::LocalEtcd;

use super::{Content, Environment, Folder, Images, Look, Mount, Place, Probe, Probes, Resources, Run, Step};

const EVENTS: &str = "trishanku-events";

/// Where it keeps them: nothing of it outlives the steps.
pub(super) fn folder() -> Folder {
    Folder { name: EVENTS.to_owned(), content: Content::Empty { size_limit: None } }
}

pub(super) fn step(etcd: &LocalEtcd, images: &Images, place: &Place) -> Step {
    let (clients, peers) = (place.events(), format!("http://127.0.0.1:{}", place.ports.events_peers));
    let folder = format!("{}/events", place.state);
    let ask = ["etcdctl".to_owned(), format!("--endpoints={clients}"), "endpoint".to_owned(), "health".to_owned()];
    let look = |every, failures| Probe {
        look: Look::Run(ask.to_vec()),
        every: Duration::from_secs(every),
        patience: Duration::from_secs(5),
        failures,
    };
    Step {
        name: "events-etcd".to_owned(),
        image: Images::choose(Some(&etcd.image), &images.etcd),
        program: "etcd".to_owned(),
        arguments: vec![
            "--name=events".to_owned(),
            format!("--data-dir={folder}/data"),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=events={peers}"),
            // Events live an hour: their history is of use to nobody.
            "--auto-compaction-retention=5m".to_owned(),
        ],
        environment: Environment::new(),
        mounts: vec![Mount::write(EVENTS, folder)],
        run: Run::Server(Probes { port: None, started: look(1, 120), alive: Some(look(20, 6)), ready: None }),
        resources: Resources::of(etcd.resources.as_ref()),
        writable_root: false,
    }
}
