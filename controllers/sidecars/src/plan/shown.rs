//! What a gitcd shows of itself to those outside of its pod.

use super::{Content, Folder, Mount, Place, Plan};

/// The folder with the certificates for that, among a plan's folders.
pub const STATUS: &str = "trishanku-status";

/// Lets gitcd show how its branch is at this port, to whoever has a certificate of the authority in a Secret with `tls.crt`, `tls.key` and `ca.crt`.
///
/// It is for pods. On a machine gitcd is asked on loopback.
pub fn show(plan: &mut Plan, place: &Place, port: u16, secret: &str) {
    let path = place.secret("status");
    let Some(step) = plan.steps.iter_mut().find(|step| step.name == "gitcd") else { return };
    step.arguments.extend([
        format!("--listen-metrics-urls=default=https://{}:{port}", place.address),
        format!("--tls-cert=default={path}/tls.crt"),
        format!("--tls-key=default={path}/tls.key"),
        format!("--tls-trusted-ca-certs=default={path}/ca.crt"),
    ]);
    step.mounts.push(Mount::read(STATUS, &path));
    let items = ["tls.crt", "tls.key", "ca.crt"].map(|file| (file, file)).to_vec();
    plan.folders.push(Folder { name: STATUS.to_owned(), content: Content::Secret { name: secret.to_owned(), items } });
}
