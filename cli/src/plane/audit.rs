//! Connects the audit events of a kube-apiserver with its gitcd, so that commits name users.
//!
//! kube-apiserver sends events to a webhook of gitcd on a loopback port, with its client certificate for the store. Flags that
//! are already there win: a kube-apiserver with `--audit-…` flags of its own is left alone.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::components::Component;
use super::file;

/// Only writes are sent. gitcd needs the resource version of each response, and reads no other part of an object; Secrets are not
/// sent at all. Events and Leases are frequent, and no person writes them.
const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/*"]
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {group: "", resources: [events]}
  - {group: events.k8s.io, resources: [events]}
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: authentication.k8s.io}
  - {group: authorization.k8s.io}
- level: Metadata
  resources:
  - {group: "", resources: [secrets, serviceaccounts/token]}
- level: RequestResponse
"#;

/// The flags of the webhook. The default waits 30 s for a batch; here commits, for which other branches wait, wait for it.
/// Small batches keep requests small; truncation would encode each event once more to know its size.
const WEBHOOK: [&str; 5] = [
    "--audit-webhook-mode=batch",
    "--audit-webhook-batch-max-wait=10ms",
    "--audit-webhook-batch-throttle-enable=false",
    "--audit-webhook-batch-max-size=32",
    "--audit-webhook-initial-backoff=1s",
];

/// Adds the flags for audit events to the gitcd and the kube-apiserver of these names, and writes the policy and the kubeconfig to
/// `folder`. Does nothing unless both are there and use TLS with client certificates.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn connect(
    components: &mut [Component],
    (gitcd, apiserver): (&str, &str),
    folder: &Path,
    port: u16,
) -> Result<(), (PathBuf, io::Error)> {
    let at = |components: &[Component], name: &str| components.iter().position(|component| component.name == name);
    let (Some(gitcd), Some(apiserver)) = (at(components, gitcd), at(components, apiserver)) else { return Ok(()) };
    let has = |component: usize, flag: &str| {
        components[component].run.args.iter().any(|arg| arg.to_string_lossy().starts_with(flag))
    };
    if !has(gitcd, "--tls-trusted-ca-certs=") || has(gitcd, "--listen-audit-urls") || has(apiserver, "--audit-") {
        return Ok(());
    }
    let value = |flag: &str| {
        let args = components[apiserver].run.args.iter();
        args.filter_map(|arg| arg.to_str()).find_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='))
    };
    let files = ["--etcd-cafile", "--etcd-certfile", "--etcd-keyfile"].map(value);
    let [Some(authority), Some(certificate), Some(key)] = files else { return Ok(()) };
    let cluster = json!({"server": format!("https://127.0.0.1:{port}/audit"), "certificate-authority": authority});
    let user = json!({"client-certificate": certificate, "client-key": key});
    let name = "gitcd";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    let (policy, webhook) = (folder.join("policy.yaml"), folder.join("webhook.json"));
    std::fs::create_dir_all(folder).map_err(|error| (folder.to_owned(), error))?;
    for (path, content) in [(&policy, POLICY.to_owned()), (&webhook, format!("{config:#}\n"))] {
        file::replace(path, content.as_bytes(), 0o600).map_err(|error| (path.clone(), error))?;
    }
    let file = |flag: &str, path: PathBuf| {
        let mut flag = OsString::from(flag);
        flag.push(path);
        flag
    };
    let flags = [file("--audit-policy-file=", policy), file("--audit-webhook-config-file=", webhook)];
    components[apiserver].run.args.extend(flags.into_iter().chain(WEBHOOK.map(OsString::from)));
    components[gitcd].run.args.push(format!("--listen-audit-urls=default=https://127.0.0.1:{port}").into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::components::{Invocation, Probe};
    use super::*;

    fn component(name: &str, args: &[&str]) -> Component {
        Component {
            name: name.to_owned(),
            port: None,
            after: Vec::new(),
            prepare: Vec::new(),
            prepare_again: false,
            is_essential: true,
            takes_turns: false,
            run: Invocation { args: args.iter().map(OsString::from).collect(), ..Invocation::default() },
            probe: Probe::Running(Duration::ZERO),
            alive: None,
            grace: Duration::ZERO,
            log: PathBuf::new(),
        }
    }

    const GITCD: &[&str] = &["serve", "--tls-trusted-ca-certs=default=/keys/ca.crt"];
    const APISERVER: &[&str] =
        &["--etcd-cafile=/keys/ca.crt", "--etcd-certfile=/keys/client.crt", "--etcd-keyfile=/keys/client.key"];

    /// Returns the arguments of both after they are connected.
    fn connected(gitcd: &[&str], apiserver: &[&str], folder: &Path) -> [Vec<String>; 2] {
        let mut components = [component("desk/gitcd", gitcd), component("desk/kube-apiserver", apiserver)];
        connect(&mut components, ("desk/gitcd", "desk/kube-apiserver"), folder, 7).unwrap();
        components.map(|component| component.run.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn events_go_to_the_listener_with_the_certificate_for_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        let [gitcd, apiserver] = connected(GITCD, APISERVER, &folder);
        assert_eq!(gitcd.last().unwrap(), "--listen-audit-urls=default=https://127.0.0.1:7");
        let policy = format!("--audit-policy-file={}", folder.join("policy.yaml").display());
        assert!(apiserver.contains(&policy), "{apiserver:?}");
        let webhook: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("webhook.json")).unwrap()).unwrap();
        assert_eq!(webhook["clusters"][0]["cluster"]["server"], "https://127.0.0.1:7/audit");
        assert_eq!(webhook["users"][0]["user"]["client-key"], "/keys/client.key");
    }

    #[test]
    fn flags_of_the_user_win_and_nothing_listens_without_client_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let of_user = [APISERVER, &["--audit-log-path=-"]].concat();
        for (gitcd, apiserver) in [(&["serve"][..], APISERVER), (GITCD, &of_user[..]), (GITCD, &APISERVER[..2])] {
            let [gitcd_after, apiserver_after] = connected(gitcd, apiserver, dir.path());
            assert_eq!(
                (gitcd_after, apiserver_after),
                (gitcd.iter().map(ToString::to_string).collect(), apiserver.iter().map(ToString::to_string).collect())
            );
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
