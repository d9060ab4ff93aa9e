//! The headless cluster of `trishanku up`, as manifests: the desk, kube-controller-manager and kube-scheduler, each with
//! a kube-apiserver on its own branch.
//!
//! ```text
//! star:  desk ──► upstream.git ◄── kube-controller-manager      mesh:  desk ◄──────────► kube-controller-manager
//!                  ▲   │   ▲                                             ▲                      ▲
//!                  │   ▼   └────── kube-scheduler                        └──► kube-scheduler ◄──┘
//!                the merge
//! ```
//!
//! In a star, each heaven pushes its branch to one repository, a merge combines them there into `cluster/data`, and each
//! heaven pulls that. In a mesh, each heaven pulls from the repositories of the others. They are ordinary manifests:
//! [`files`] writes them into the control plane's folder, where people can read them, and `trishanku run` accepts them
//! unchanged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trishanku_api::{Certificates, Gitcd, TrishankuHeavenSpec};

use crate::heavens::{self, Manifests, SecretError};
use crate::plane::{Home, file};

pub use crate::record::Topology;

/// The heaven for people.
pub const DESK: &str = "desk";
/// The other heavens, and the names of their branches.
const CONTROLLERS: [(&str, &str); 2] = [("kube-controller-manager", "kcm"), ("kube-scheduler", "scheduler")];
/// The branch with the merged state, in a star.
pub const CLUSTER: &str = "cluster";
const API: &str = "controllers.trishanku.org.trishanku.org/v1alpha1";
const KUBECONFIG: &str = "/var/run/heaven/kubeconfig";

/// Writes the manifests and creates the repositories that have to exist; returns the files.
///
/// # Errors
/// [`SecretError::File`] with the path that cannot be created.
pub fn files(home: &Home, topology: Topology) -> Result<Vec<PathBuf>, SecretError> {
    let failed = |path: &PathBuf, source| SecretError::File { path: path.clone(), source };
    let dir = home.manifests();
    heavens::make_folder(&dir)?;
    let mut repositories = Vec::new();
    match topology {
        Topology::Star => repositories.push((home.upstream(), format!("{CLUSTER}/data"))),
        // The others have to find each repository before its heaven has started.
        Topology::Mesh => repositories.extend(names().map(|name| (repository(home, name), branch(name)))),
    }
    for (repository, branch) in repositories.iter().filter(|(repository, _)| !repository.join("HEAD").exists()) {
        heavens::make_bare(repository, branch)?;
    }
    let mut files = Vec::new();
    for (name, objects) in manifests(home, topology) {
        let path = dir.join(format!("{name}.yaml"));
        let documents = objects.iter().map(|object| serde_saphyr::to_string(object).map_err(std::io::Error::other));
        let text = documents.collect::<Result<Vec<_>, _>>().map_err(|source| failed(&path, source))?.join("---\n");
        file::replace(&path, text.as_bytes(), 0o600).map_err(|source| failed(&path, source))?;
        files.push(path);
    }
    Ok(files)
}

/// Returns the components that each heaven waits for on its first start: its branch starts from what the desk's
/// kube-apiserver has created, so that there is one set of default objects and not three.
#[must_use]
pub fn first_start(topology: Topology, manifests: &Manifests) -> BTreeMap<String, Vec<String>> {
    let desk = format!("{DESK}/kube-apiserver");
    let merge = format!("{CLUSTER}-automerge");
    let before = match topology {
        Topology::Star => format!("{merge}/gitcd"),
        Topology::Mesh => desk.clone(),
    };
    let others = manifests.heavens.iter().map(|(name, _)| name).filter(|name| *name != DESK);
    others.map(|name| (name.clone(), vec![before.clone()])).chain([(merge, vec![desk])]).collect()
}

/// Adds heavens of user files to the cluster: branch and certificates that they leave out become those of the cluster,
/// and in a mesh the cluster's own heavens pull from them.
///
/// # Errors
/// [`SecretError::File`] with a repository that cannot be created.
pub fn join(home: &Home, topology: Topology, manifests: &mut Manifests) -> Result<(), SecretError> {
    let is_new = |(name, spec): &&(String, TrishankuHeavenSpec)| {
        let is_own = names().any(|own| own == name) || name == CLUSTER;
        let has_app = spec.app.is_some() && spec.skip.as_ref().and_then(|skip| skip.app) != Some(true);
        !is_own && has_app && spec.gitcd.as_ref().is_none_or(|gitcd| gitcd.git.is_none())
    };
    let new: Vec<String> = manifests.heavens.iter().filter(is_new).map(|(name, _)| name.clone()).collect();
    let all: Vec<String> = names().map(ToOwned::to_owned).chain(new.iter().cloned()).collect();
    for (name, spec) in &mut manifests.heavens {
        let joins = new.contains(name);
        if joins {
            let shared: Certificates = typed(certificates());
            let given = spec.certificates.get_or_insert_default();
            let or = |given: &mut Option<String>, shared: Option<String>| *given = given.take().or(shared);
            or(&mut given.certificate_authority_secret_name, shared.certificate_authority_secret_name);
            or(&mut given.service_accounts_secret_name, shared.service_accounts_secret_name);
            or(&mut given.kubernetes_secret_name, shared.kubernetes_secret_name);
            or(&mut given.admin_secret_name, shared.admin_secret_name);
        }
        // In a mesh the cluster's own heavens pull from it as well, unless a file says from whom they pull.
        let follows = topology == Topology::Mesh && !new.is_empty() && names().any(|own| own == name);
        if joins || follows {
            let wanted: Gitcd = typed(gitcd(home, topology, name, &all));
            let given = spec.gitcd.get_or_insert_default();
            given.git = wanted.git;
            given.pull = given.pull.take().or(wanted.pull);
        }
    }
    for (_, spec) in manifests.merges.iter_mut().filter(|(name, _)| name == CLUSTER) {
        let remotes = new.iter().map(|name| typed(merged(home, name)));
        spec.gitcd.get_or_insert_default().git.get_or_insert_default().remotes.extend(remotes);
    }
    if topology == Topology::Mesh {
        let repositories = new.iter().map(|name| (repository(home, name), branch(name)));
        let mut missing = repositories.filter(|(path, _)| !path.join("HEAD").exists());
        missing.try_for_each(|(path, branch)| heavens::make_bare(&path, &branch))?;
    }
    Ok(())
}

/// Deserializes values written in this file.
fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the manifests of this cluster have this type")
}

fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(DESK).chain(CONTROLLERS.iter().map(|(name, _)| *name))
}

/// The repository of a heaven.
fn repository(home: &Home, heaven: &str) -> PathBuf {
    home.heavens().join(heaven).join("root/repo")
}

fn branch(heaven: &str) -> String {
    let short = CONTROLLERS.iter().find(|(name, _)| *name == heaven).map_or(heaven, |(_, short)| short);
    format!("{short}/data")
}

/// The branch of a heaven, and from which of `all` it pulls.
fn gitcd(home: &Home, topology: Topology, name: &str, all: &[String]) -> Value {
    match topology {
        Topology::Star => {
            let remote = json!({
                "repo": home.upstream(),
                "branches": {"data": format!("{CLUSTER}/data"), "failOnNoBranch": name != DESK},
            });
            json!({
                "git": {"branches": {"data": branch(name)}, "remotes": [remote]},
                "pull": {"pushOnPullFailure": true},
            })
        }
        Topology::Mesh => {
            let remote = |other: &String| {
                json!({
                    "name": other,
                    "repo": repository(home, other),
                    "branches": {"data": branch(other), "failOnNoBranch": other == DESK},
                })
            };
            let others: Vec<Value> = all.iter().filter(|other| *other != name).map(remote).collect();
            json!({
                "git": {"branches": {"data": branch(name)}, "remotes": others},
                "pull": {"pushAfterMerge": false},
            })
        }
    }
}

/// A heaven as a remote of the merge.
fn merged(home: &Home, name: &str) -> Value {
    json!({
        "name": name,
        "repo": home.upstream(),
        "branches": {"data": branch(name), "failOnNoBranch": name == DESK},
    })
}

/// The certificates that all heavens of the cluster share.
fn certificates() -> Value {
    json!({
        "certificateAuthoritySecretName": "cluster-cert-ca",
        "serviceAccountsSecretName": "cluster-cert-service-account",
        "kubernetesSecretName": "cluster-cert-kubernetes",
        "adminSecretName": "cluster-admin",
    })
}

fn manifests(home: &Home, topology: Topology) -> Vec<(&'static str, Vec<Value>)> {
    let shared = object("TrishankuHeaven", CLUSTER, &json!({"skip": {"app": true}}));
    let mut all = vec![("shared", vec![shared])];
    let own: Vec<String> = names().map(ToOwned::to_owned).collect();
    let gitcd = |name: &str| gitcd(home, topology, name, &own);
    all.push((DESK, vec![heaven(DESK, "trishanku-desk", &gitcd(DESK), &desk())]));
    for ((name, _), pod) in CONTROLLERS.into_iter().zip([controller_manager(), scheduler()]) {
        all.push((name, vec![heaven(name, &format!("system:{name}"), &gitcd(name), &pod)]));
    }
    if topology == Topology::Star {
        let merge = json!({
            "gitcd": {
                "git": {
                    "branches": {"data": format!("{CLUSTER}/data")},
                    "remotes": names().map(|name| merged(home, name)).collect::<Vec<_>>(),
                },
            },
            "app": {"committerName": "automerge"},
        });
        all.push(("merge", vec![object("AutomatedMerge", CLUSTER, &merge)]));
    }
    all
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn heaven(name: &str, user: &str, gitcd: &Value, pod: &Value) -> Value {
    let mut certificates = certificates();
    certificates["controller"] = json!({"secretName": name, "userName": user, "groupName": user});
    let spec = json!({
        "skip": {"entrypoints": true},
        "certificates": certificates,
        "gitcd": gitcd,
        "app": {
            "entrypointsConfigMapName": "cluster-entrypoints",
            "kubeconfigMountPath": KUBECONFIG,
            "podTemplate": {"spec": pod},
        },
    });
    object("TrishankuHeaven", name, &spec)
}

/// Nothing runs at the desk, but a pod needs a container.
fn desk() -> Value {
    json!({"containers": [{"name": "desk", "image": "registry.k8s.io/pause:3.10"}]})
}

fn controller_manager() -> Value {
    json!({
        "containers": [{
            "name": "kube-controller-manager",
            "image": "registry.k8s.io/kube-controller-manager:v1.36.3",
            "command": [
                "kube-controller-manager",
                format!("--kubeconfig={KUBECONFIG}"),
                format!("--authentication-kubeconfig={KUBECONFIG}"),
                format!("--authorization-kubeconfig={KUBECONFIG}"),
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                "--cluster-signing-cert-file=/certificates/ca/tls.crt",
                "--cluster-signing-key-file=/certificates/ca/tls.key",
                "--root-ca-file=/certificates/ca/ca.crt",
                "--service-account-private-key-file=/certificates/service-accounts/tls.key",
            ],
            "volumeMounts": [
                {"name": "ca", "mountPath": "/certificates/ca"},
                {"name": "service-accounts", "mountPath": "/certificates/service-accounts"},
            ],
        }, {
            // Repairs conflicts that kube-apiserver only reports, each on its own branch.
            "name": "allocations",
            "image": concat!("ghcr.io/trishanku-org/trishanku:", env!("CARGO_PKG_VERSION")),
            "command": ["trishanku", "allocations", "--kubeconfig=/certificates/admin/kubeconfig"],
            "volumeMounts": [{"name": "admin", "mountPath": "/certificates/admin"}],
        }],
        "volumes": [
            {"name": "admin", "secret": {"secretName": "cluster-admin"}},
            {"name": "ca", "secret": {"secretName": "cluster-cert-ca"}},
            {"name": "service-accounts", "secret": {"secretName": "cluster-cert-service-account"}},
        ],
    })
}

fn scheduler() -> Value {
    json!({
        "containers": [{
            "name": "kube-scheduler",
            "image": "registry.k8s.io/kube-scheduler:v1.36.3",
            "command": [
                "kube-scheduler",
                format!("--kubeconfig={KUBECONFIG}"),
                format!("--authentication-kubeconfig={KUBECONFIG}"),
                format!("--authorization-kubeconfig={KUBECONFIG}"),
                "--leader-elect=false",
            ],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_topologies_are_manifests_that_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for (topology, merges, remotes) in [(Topology::Star, 1, 1), (Topology::Mesh, 0, 2)] {
            let read = Manifests::read(&files(&home, topology).unwrap()).unwrap();
            assert_eq!((read.heavens.len(), read.merges.len(), read.ignored.len()), (4, merges, 0));
            for (name, spec) in read.heavens.iter().filter(|(name, _)| name != CLUSTER) {
                let git = spec.gitcd.clone().unwrap().git.unwrap();
                assert_eq!(git.remotes.len(), remotes, "{name}");
                assert!(git.remotes.iter().all(|remote| remote.repo != repository(&home, name).display().to_string()));
            }
        }
        // A user's heaven that leaves out branch and certificates.
        let more = dir.path().join("more.yaml");
        let mine = heaven("mine", "me", &Value::Null, &desk());
        let mine = json!({
            "apiVersion": API, "kind": "TrishankuHeaven", "metadata": {"name": "mine"},
            "spec": {"certificates": {"controller": {"userName": "me"}}, "app": mine["spec"]["app"]},
        });
        std::fs::write(&more, mine.to_string()).unwrap();
        for (topology, follows, merged) in [(Topology::Star, 1, 4), (Topology::Mesh, 3, 0)] {
            let files = [files(&home, topology).unwrap(), vec![more.clone()]].concat();
            let mut read = Manifests::read(&files).unwrap();
            join(&home, topology, &mut read).unwrap();
            let remotes = |gitcd: &Option<Gitcd>| gitcd.clone().unwrap().git.unwrap().remotes.len();
            for (name, spec) in read.heavens.iter().filter(|(name, _)| name != CLUSTER) {
                assert_eq!(remotes(&spec.gitcd), follows, "{name}");
            }
            assert_eq!(read.merges.first().map_or(0, |(_, merge)| remotes(&merge.gitcd)), merged);
            let (_, mine) = read.heavens.last().unwrap();
            assert_eq!(mine.certificates.clone().unwrap().admin_secret_name.unwrap(), "cluster-admin");
            assert!(first_start(topology, &read).contains_key("mine"));
        }
        // Clones check out the branch that HEAD names.
        let head = |repository: PathBuf| std::fs::read_to_string(repository.join("HEAD")).unwrap();
        assert_eq!(head(home.upstream()), "ref: refs/heads/cluster/data\n");
        assert_eq!(head(repository(&home, "kube-controller-manager")), "ref: refs/heads/kcm/data\n");
    }
}
