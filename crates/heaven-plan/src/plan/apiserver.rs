//! kube-apiserver.

use std::time::Duration;

use super::{Content, Environment, Folder, Images, Look, Mount, Place, Plan, Probe, Probes, Resources, Run, Step};
use crate::HeavenParts;

const KUBERNETES: &str = "trishanku-kubernetes";
const SERVICE_ACCOUNTS: &str = "trishanku-service-accounts";
/// The name of the folder with the encryption configuration.
pub const ENCRYPTION: &str = "trishanku-encryption";
const TEMPORARY: &str = "trishanku-tmp";

/// The cluster's service range; its first address is in kube-apiserver's certificate.
pub const SERVICE_RANGE: &str = "10.32.0.0/24";

pub(super) fn add(plan: &mut Plan, parts: &HeavenParts<'_>, images: &Images, place: &Place, waits: bool) {
    let (given, certificates) = (parts.apiserver.cloned().unwrap_or_default(), &parts.certificates);
    let mut mounts = Vec::new();
    let mut folder = |name: &str, secret: &str, items: Vec<(&'static str, &'static str)>, path: &str| {
        let content = Content::Secret { name: secret.to_owned(), items };
        plan.folders.push(Folder { name: name.to_owned(), content });
        mounts.push(Mount::read(name, place.secret(path)));
        place.secret(path)
    };
    let kubernetes = folder(KUBERNETES, &certificates.kubernetes, Vec::new(), "kubernetes");
    let accounts = folder(SERVICE_ACCOUNTS, &certificates.service_accounts, Vec::new(), "service-accounts");
    let encryption = given.encryption_configuration_secret_name.as_deref();
    let encryption =
        encryption.map(|secret| folder(ENCRYPTION, secret, vec![("encryption.yaml", "encryption.yaml")], "encryption"));
    mounts.extend(Mount::store(place));
    plan.folders.push(Folder { name: TEMPORARY.to_owned(), content: Content::Empty { size_limit: None } });
    mounts.push(Mount::write(TEMPORARY, "/tmp"));

    let mut flags = vec![
        // The only storage flags. Watch cache, compaction, consistent reads and leases keep their defaults.
        ("etcd-servers", place.gitcd()),
        ("storage-media-type", "application/json".to_owned()),
        ("bind-address", place.address.clone()),
        ("secure-port", place.ports.apiserver.to_string()),
        // Otherwise the heavens of a cluster would overwrite each other's endpoints of the `kubernetes` Service.
        ("endpoint-reconciler-type", "none".to_owned()),
        ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("allow-privileged", "true".to_owned()),
        // In the same Secret as its certificate, so that both change at the same time.
        ("client-ca-file", format!("{kubernetes}/ca.crt")),
        ("tls-cert-file", format!("{kubernetes}/tls.crt")),
        ("tls-private-key-file", format!("{kubernetes}/tls.key")),
        ("kubelet-client-certificate", format!("{kubernetes}/tls.crt")),
        ("kubelet-client-key", format!("{kubernetes}/tls.key")),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".to_owned()),
        ("service-account-key-file", format!("{accounts}/tls.crt")),
        ("service-account-signing-key-file", format!("{accounts}/tls.key")),
    ];
    let (cert, key) = place.trust.store_client();
    flags.extend([("etcd-cafile", place.trust.store_authority()), ("etcd-certfile", cert), ("etcd-keyfile", key)]);
    flags.extend(place.trust.front_proxy());
    if place.is_loopback() {
        // Otherwise the address of the default route is advertised, and a machine without network cannot start.
        flags.push(("advertise-address", place.address.clone()));
    }
    if parts.events_etcd.is_some() {
        flags.push(("etcd-servers-overrides", format!("/events#{}", place.events())));
    }
    if let Some(encryption) = encryption {
        flags.push(("encryption-provider-config", format!("{encryption}/encryption.yaml")));
        flags.push(("encryption-provider-config-automatic-reload", "true".to_owned()));
    }
    // kube-apiserver accepts underscores in names of flags, too.
    let is_other = |name: &str| !given.extra_args.keys().any(|other| other.replace('_', "-") == name);
    let ours = flags.into_iter().filter(|(name, _)| is_other(name)).map(|(name, value)| format!("--{name}={value}"));
    let others = given.extra_args.iter().map(|(name, value)| format!("--{name}={value}"));
    let look = |path, every, failures| Probe {
        look: Look::Https { path },
        every: Duration::from_secs(every),
        patience: Duration::from_secs(5),
        failures,
    };
    // With a lease, it starts while another pod is the writer, and becomes ready with its store's turn, however long that
    // takes.
    let failures = if waits { u16::MAX } else { 300 };
    plan.steps.push(Step {
        name: "kube-apiserver".to_owned(),
        image: Images::choose(Some(&given.image), &images.apiserver),
        program: "kube-apiserver".to_owned(),
        arguments: ours.chain(others).collect(),
        environment: Environment::new(),
        mounts,
        run: Run::Server(Probes {
            port: Some(("kube-apiserver", place.ports.apiserver)),
            started: look("/readyz", 1, failures),
            alive: Some(look("/livez", 10, 8)),
            ready: Some(look("/readyz", 5, 3)),
        }),
        resources: Resources::of(given.resources.as_ref()),
        writable_root: false,
    });
}
