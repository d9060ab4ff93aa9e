//! The conditions of a faulty heaven, and whether the documentation's advice for them helps.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use trishanku_e2e::nodes::kubectl::said;
use trishanku_e2e::programs;

use crate::world::{TOKEN, World, container_id, until};

const NAMESPACE: &str = "trouble";
const NAME: &str = "troubled";
const REPOSITORY: &str = "other/trouble.git";
/// A separate Service address of the Git host, which only this test uses.
const WAY: &str = "10.96.0.81";
const IMAGE: &str = "registry.k8s.io/pause:3.10.1";

/// Faults, one after the other: each must be reported with the documented condition and reason, and disappear by the documented
/// remedy.
pub(crate) fn what_is_wrong_is_reported_with_a_reason_and_what_the_documentation_says_of_it_helps(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    world.kubectl(&format!("create namespace {NAMESPACE}"))?;
    kubectl(
        world,
        &format!(
            "create secret generic git-credentials --from-literal=username=e2e --from-literal=password={TOKEN} --from-literal=url=https://{WAY}"
        ),
    )?;
    world.trust_host(NAMESPACE, "git-credentials")?;
    way(world, true)?;
    before_there_is_a_pod(world)?;
    let branch = Branch::missing(world)?;
    its_remote(world, &branch)?;
    the_last_push(world, &branch)?;
    world.kubectl(&format!("delete namespace {NAMESPACE} --timeout=2m"))?;
    Ok(())
}

/// Faults of its Secrets, its manifest, and the manager's rights.
fn before_there_is_a_pod(world: &World) -> anyhow::Result<()> {
    // An incomplete Secret created by a user.
    kubectl(world, "create secret generic troubled-admin --from-literal=tls.crt=")?;
    world.cluster().apply(&heaven("gitcd").to_string())?;
    let fault = wait_for_fault(world, "CertificatesReady", "SecretIncomplete")?;
    ensure!(fault.message.contains("troubled-admin") && fault.advice.contains("delete it"), "{fault:?}");
    kubectl(world, "delete secret troubled-admin")?;

    // A ConfigMap that a user should have created.
    let fault = wait_for_fault(world, "Ready", "NotFound")?;
    ensure!(fault.message.contains("\"troubled-own\"") && fault.advice.contains("make it"), "{fault:?}");
    kubectl(world, "create configmap troubled-own")?;

    // A pod template with a reserved container name.
    let fault = wait_for_fault(world, "Stalled", "InvalidPodTemplate")?;
    let file = world.file("troubled.json");
    std::fs::write(&file, heaven("gitcd").to_string())?;
    ensure!(fault.advice.contains("`trishanku lint -f FILE`"), "{fault:?}");
    let lint = Command::new(programs::folder()?.join("trishanku")).args(["lint", "-f"]).arg(&file).output()?;
    let found = String::from_utf8_lossy(&lint.stdout).into_owned();
    ensure!(lint.status.code() == Some(1) && found.contains(&fault.message), "{fault:?}\n{found}");

    // The rights of a version that created no pods.
    let rights = Rights::without_deployments(world)?;
    world.cluster().apply(&heaven("app").to_string())?;
    let fault = wait_for_fault(world, "Ready", "Forbidden")?;
    ensure!(fault.message.contains("deployments") && fault.advice.contains("`deploy/kustomize/rbac`"), "{fault:?}");
    rights.give_back()
}

/// The upstream branch that it follows.
struct Branch<'w> {
    world: &'w World,
    clone: PathBuf,
}

impl<'w> Branch<'w> {
    /// The branch to start from is missing, until it is pushed.
    fn missing(world: &'w World) -> anyhow::Result<Self> {
        let fault = wait_for_fault(world, "Ready", "MinimumReplicasUnavailable")?;
        ensure!(fault.advice.contains("`git-pre`"), "{fault:?}");
        until("git-pre to log the reason", || {
            let log = kubectl(world, &format!("logs deployment/{NAME}-heaven --container=git-pre"))?;
            ensure!(log.contains("upstream/data"), "{log}");
            Ok(Some(()))
        })?;
        let branch = Self { world, clone: world.file("trouble") };
        std::fs::create_dir(&branch.clone)?;
        branch.git(&["init", "--quiet"])?;
        branch.git(&["commit", "--quiet", "--allow-empty", "--message=nothing yet"])?;
        // The first pushed branch becomes the one that `HEAD` names, so this one stays.
        branch.git(&["push", "--quiet", "REMOTE", "HEAD:refs/heads/main"])?;
        branch.make()?;
        world.until_condition(&object(), "Ready")?;
        world.until_condition(&object(), "Synced")?;
        Ok(branch)
    }

    fn git(&self, words: &[&str]) -> anyhow::Result<()> {
        self.world.git_at(REPOSITORY, &self.clone, words).map(drop)
    }

    fn make(&self) -> anyhow::Result<()> {
        self.git(&["push", "--quiet", "REMOTE", "HEAD:refs/heads/upstream/data"])
    }

    fn take_away(&self) -> anyhow::Result<()> {
        self.git(&["push", "--quiet", "REMOTE", ":refs/heads/upstream/data"])
    }
}

/// A wrong password, a missing branch, and an unreachable host.
fn its_remote(world: &World, branch: &Branch<'_>) -> anyhow::Result<()> {
    let password = |password: &str| {
        let patch = json!({"stringData": {"password": password}});
        kubectl(world, &format!("patch secret git-credentials --type=merge --patch={patch}"))
    };
    password("another")?;
    let fault = wait_for_fault(world, "Synced", "Denied")?;
    ensure!(fault.advice.contains("`credentialsSecretName`") && !fault.message.contains(TOKEN), "{fault:?}");
    branch.take_away()?;
    password(TOKEN)?;
    let fault = wait_for_fault(world, "Synced", "NoBranch")?;
    ensure!(fault.message.contains("upstream/data"), "{fault:?}");
    branch.make()?;
    world.until_condition(&object(), "Synced")?;
    way(world, false)?;
    // An open connection survives, so gitcd has to open a new one.
    kill_gitcd(world)?;
    let fault = wait_for_fault(world, "Synced", "Unreachable")?;
    ensure!(fault.advice.contains("route"), "{fault:?}");
    way(world, true)?;
    world.until_condition(&object(), "Synced")
}

/// The heaven is deleted with an unpushed object while its remote has no branch.
fn the_last_push(world: &World, branch: &Branch<'_>) -> anyhow::Result<()> {
    branch.take_away()?;
    wait_for_fault(world, "Synced", "NoBranch")?;
    let heaven = world.heaven(NAMESPACE, NAME, &format!("{NAME}-admin"))?;
    heaven.kubectl("create configmap left")?;
    drop(heaven);
    kubectl(world, &format!("delete trishankuheaven {NAME} --wait=false"))?;
    let fault = wait_for_fault(world, "Ready", "WaitingForLastPush")?;
    let command = fault.advice.split('`').find_map(|text| text.strip_prefix("kubectl annotate trishankuheaven NAME "));
    let command = command.with_context(|| format!("the documentation has no command for {fault:?}"))?;
    kubectl(world, &format!("annotate trishankuheaven {NAME} {command}"))?;
    kubectl(world, &format!("wait --for=delete trishankuheaven/{NAME} --timeout=2m")).map(drop)
}

/// kubectl in the namespace of the faulty heaven.
fn kubectl(world: &World, words: &str) -> anyhow::Result<String> {
    world.kubectl(&format!("--namespace {NAMESPACE} {words}"))
}

/// A reported condition of the heaven.
#[derive(Debug)]
struct Fault {
    message: String,
    /// The documentation's advice.
    advice: String,
}

fn object() -> String {
    format!("trishankuheaven {NAME} --namespace {NAMESPACE}")
}

/// Waits until a condition has this reason, which the documentation must list.
fn wait_for_fault(world: &World, condition: &str, reason: &str) -> anyhow::Result<Fault> {
    let advice = World::advice(condition, reason)?;
    // `Stalled` reports a fault if true, the others if false.
    let wrong = if condition == "Stalled" { "True" } else { "False" };
    until(&format!("{condition} to have the reason {reason}"), || {
        let heaven = world.cluster().object(&object())?;
        let conditions = heaven["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|found| found["type"] == condition);
        let found = found.with_context(|| format!("no condition {condition}"))?;
        ensure!(found["status"] == wrong && found["reason"] == reason, "{found}");
        let message = found["message"].as_str().unwrap_or_default().to_owned();
        Ok(Some(Fault { message, advice: advice.clone() }))
    })
}

/// A heaven without a controller, with a container of this name.
fn heaven(container: &str) -> Value {
    json!({
        "apiVersion": "controllers.trishanku.org.trishanku.org/v1alpha1", "kind": "TrishankuHeaven",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "skip": {"entrypoints": true},
            "certificates": {"controller": {"userName": "app"}},
            "gitcd": {
                "credentialsSecretName": "git-credentials",
                "git": {
                    "branches": {"data": "troubled/data", "metadata": "troubled/metadata"},
                    "remotes": [{
                        "repo": format!("https://{WAY}/{REPOSITORY}"),
                        "branches": {"data": "upstream/data", "metadata": "upstream/metadata", "failOnNoBranch": true},
                    }],
                },
                "pull": {"tickerDuration": "2s"},
            },
            "app": {
                "entrypointsConfigMapName": "troubled-own",
                "podTemplate": {"spec": {"containers": [{"name": container, "image": IMAGE}]}},
            },
        },
    })
}

/// Kills gitcd of the heaven, which restarts.
fn kill_gitcd(world: &World) -> anyhow::Result<()> {
    let pods = world
        .cluster()
        .object(&format!("pods --namespace {NAMESPACE} --selector=controllers.trishanku.org/heaven={NAME}"))?;
    world.cluster().faults().kill_container(&container_id(&pods["items"][0], "gitcd")?)
}

/// Takes rights away from the manager. Later scenarios need them, so they are restored on drop.
struct Rights<'w> {
    world: &'w World,
    are_back: bool,
}

impl<'w> Rights<'w> {
    /// Removes the rights to create and change Deployments, and waits until that is effective.
    fn without_deployments(world: &'w World) -> anyhow::Result<Self> {
        const MANAGER: &str = "--as=system:serviceaccount:trishanku-system:trishanku-manager";
        let role = world.cluster().object("clusterrole trishanku-manager")?;
        let mut less = json!({"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": {"name": role["metadata"]["name"]}, "rules": role["rules"]});
        let rules = less["rules"].as_array_mut().context("the role has no rules")?;
        let of_deployments = rules.iter_mut().filter(|rule| rule["resources"] == json!(["deployments"]));
        of_deployments.for_each(|rule| rule["verbs"] = json!(["list", "watch"]));
        let taken = Self { world, are_back: false };
        let mut replace = world.cluster().kubectl_command();
        said(replace.args(["replace", "--filename=-"]), &less.to_string())?;
        until("the manager to lose its rights", || {
            // It fails if the answer is no.
            let may = world.kubectl(&format!("auth can-i create deployments --namespace={NAMESPACE} {MANAGER}"));
            Ok(may.is_err_and(|no| no.to_string().lines().any(|line| line.ends_with(": no"))).then_some(()))
        })?;
        Ok(taken)
    }

    fn give_back(mut self) -> anyhow::Result<()> {
        self.are_back = true;
        self.apply()
    }

    fn apply(&self) -> anyhow::Result<()> {
        let rights = World::source("deploy/kustomize/rbac");
        let rights = rights.to_str().context("the folder's name is not UTF-8")?;
        self.world.kubectl(&format!("apply --server-side --force-conflicts --kustomize {rights}")).map(drop)
    }
}

impl Drop for Rights<'_> {
    fn drop(&mut self) {
        if !self.are_back
            && let Err(error) = self.apply()
        {
            eprintln!("cannot restore the manager's rights: {error:#}");
        }
    }
}

/// Creates the Service of the Git host, with its endpoint or with none.
fn way(world: &World, leads: bool) -> anyhow::Result<()> {
    let pods = world.cluster().object("pods --selector=app.kubernetes.io/name=git-host")?;
    let address = pods["items"][0]["status"]["podIP"].as_str().context("the Git host has no address")?.to_owned();
    let addresses = if leads { json!([{"addresses": [address]}]) } else { json!([]) };
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "way", "namespace": NAMESPACE},
        "spec": {"clusterIP": WAY, "ports": [{"name": "https", "port": 443, "targetPort": 2480}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": addresses,
        "metadata": {"name": "way", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": "way"}},
        "ports": [{"name": "https", "port": 2480}],
    });
    for object in [service, slice] {
        world.cluster().apply(&object.to_string())?;
    }
    Ok(())
}
