//! Access to gitcd's status from outside the pod.

use super::{Content, Folder, Mount, Place, Plan};

/// The name of the folder with its certificates, among a plan's folders.
pub const STATUS: &str = "trishanku-status";

/// Makes gitcd serve its status at this port, to clients with a certificate of the authority in `secret`, which has
/// `tls.crt`, `tls.key` and `ca.crt`.
///
/// For pods only: on a machine, gitcd is reachable on loopback.
pub fn show(plan: &mut Plan, place: &Place, port: u16, secret: &str) {
    let path = place.secret("status");
    let Some(step) = plan.steps.iter_mut().find(|step| step.name == "gitcd") else { return };
    // A store has certificates of another authority: those of kube-apiserver's clients must not open it.
    let serves = step.arguments.first().is_some_and(|command| command == "serve");
    let tls = if serves { "metrics-tls" } else { "tls" };
    step.arguments.extend([
        format!("--listen-metrics-urls=default=https://{}:{port}", place.address),
        format!("--{tls}-cert=default={path}/tls.crt"),
        format!("--{tls}-key=default={path}/tls.key"),
        format!("--{tls}-trusted-ca-certs=default={path}/ca.crt"),
    ]);
    step.mounts.push(Mount::read(STATUS, &path));
    let items = ["tls.crt", "tls.key", "ca.crt"].map(|file| (file, file)).to_vec();
    plan.folders.push(Folder { name: STATUS.to_owned(), content: Content::Secret { name: secret.to_owned(), items } });
}
