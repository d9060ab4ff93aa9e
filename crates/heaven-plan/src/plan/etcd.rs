//! An etcd for events.

use std::time::Duration;

use trishanku_api::LocalEtcd;

use super::{Content, Environment, Folder, Images, Look, Mount, Place, Probe, Probes, Resources, Run, Step};

const EVENTS: &str = "trishanku-events";

/// The folder of its data, which does not outlive the pod.
pub(super) fn folder() -> Folder {
    Folder { name: EVENTS.to_owned(), content: Content::Empty { size_limit: None } }
}

pub(super) fn step(etcd: &LocalEtcd, images: &Images, place: &Place) -> Step {
    let (clients, peers) = (place.events(), place.event_peers());
    let folder = format!("{}/events", place.state);
    let mut ask = vec!["etcdctl".to_owned(), format!("--endpoints={clients}")];
    let ((cert, key), authority) = (place.trust.store(), place.trust.store_authority());
    // There are no other members, and client certificates keep others from joining.
    let trusts = ["", "peer-"].into_iter().flat_map(|of| {
        [
            format!("--{of}cert-file={cert}"),
            format!("--{of}key-file={key}"),
            format!("--{of}trusted-ca-file={authority}"),
            format!("--{of}client-cert-auth=true"),
        ]
    });
    let (client_cert, client_key) = place.trust.store_client();
    ask.extend([format!("--cacert={authority}"), format!("--cert={client_cert}"), format!("--key={client_key}")]);
    ask.extend(["endpoint", "health"].map(ToOwned::to_owned));
    let look = |every, failures| Probe {
        look: Look::Run(ask.clone()),
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
            // Events live an hour, and their history is useless.
            "--auto-compaction-retention=5m".to_owned(),
        ]
        .into_iter()
        .chain(trusts)
        .collect(),
        environment: Environment::new(),
        mounts: [Mount::write(EVENTS, folder)].into_iter().chain(Mount::store(place)).collect(),
        run: Run::Server(Probes { port: None, started: look(1, 120), alive: Some(look(20, 6)), ready: None }),
        resources: Resources::of(etcd.resources.as_ref()),
        writable_root: false,
    }
}
