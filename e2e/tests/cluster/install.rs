//! Installation, a first heaven, and uninstallation.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::world::{World, until};

/// The start of the installation.
static BEGUN: OnceLock<Instant> = OnceLock::new();

/// `kubectl apply -k deploy/kustomize/default`, into a namespace that enforces the restricted standard.
pub(crate) fn one_command_installs_the_manager(world: &Arc<World>) -> anyhow::Result<()> {
    world.remember_everything()?;
    let begun = *BEGUN.get_or_init(Instant::now);
    let applied = world.documented("kubectl apply --server-side --kustomize deploy/kustomize/default")?;
    ensure!(applied.contains("deployment.apps/trishanku-manager serverside-applied"), "{applied}");
    world.documented(
        "kubectl wait --for=condition=Available deployment/trishanku-manager --namespace trishanku-system --timeout=3m",
    )?;
    eprintln!("installed after {:?}", begun.elapsed());
    let namespace = world.cluster().object("namespace trishanku-system")?;
    ensure!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted");
    let kinds = world.kubectl("api-resources --api-group=controllers.trishanku.org.trishanku.org --output=name")?;
    ensure!(kinds.lines().count() == 3, "{kinds}");
    Ok(())
}

/// The documentation's manifest, in a namespace that enforces the restricted standard, and the documentation's commands to
/// inspect it.
pub(crate) fn a_first_heaven_is_ready_where_pods_have_to_be_restricted(world: &Arc<World>) -> anyhow::Result<()> {
    let begun = Instant::now();
    for command in [
        "kubectl create namespace heavens",
        "kubectl label namespace heavens pod-security.kubernetes.io/enforce=restricted",
        "kubectl apply --filename examples/first-heaven.yaml",
        "kubectl wait --for=condition=Ready trishankuheaven/first --namespace heavens --timeout=4m",
    ] {
        world.documented(command)?;
    }
    eprintln!("the first heaven was ready after {:?}", begun.elapsed());
    if let Some(begun) = BEGUN.get() {
        eprintln!("from the installation to a ready first heaven: {:?}", begun.elapsed());
    }

    let heaven = world.heaven("heavens", "first", "first-admin")?;
    heaven.kubectl("create configmap greeting --from-literal=word=hello")?;
    // gitcd's own report of what is in Git.
    let log = until("the commit", || {
        let log = world.documented("kubectl exec --namespace heavens deployment/first-heaven --container gitcd -- gitcd log --repo=/root/repo configmaps/default/greeting")?;
        Ok((log.lines().count() > 1).then_some(log))
    })?;
    ensure!(log.contains("VERSION") && log.contains("create"), "{log}");
    let shell = world.kubectl("exec --namespace heavens deployment/first-heaven --container gitcd -- sh -c true");
    ensure!(shell.is_err_and(|error| error.to_string().contains("not found")), "the image has no shell");
    drop(heaven);
    // It never pushes, so its branch is lost with it.
    world.documented("kubectl delete trishankuheaven first --namespace heavens --timeout=2m")?;
    world.documented("kubectl delete namespace heavens --timeout=2m")?;
    Ok(())
}

/// By the steps of the documentation, in their order.
pub(crate) fn uninstalling_leaves_nothing(world: &Arc<World>) -> anyhow::Result<()> {
    world.documented(
        "kubectl delete trishankuheavens,automatedmerges,githubrepositories --all --all-namespaces --timeout=5m",
    )?;
    world.documented("kubectl delete --kustomize deploy/kustomize/default --timeout=4m")?;
    // Objects that users created for it are theirs to delete; without the published manifests there are none.
    world.kubectl("delete deployment,service git --ignore-not-found --timeout=2m")?;
    world.kubectl("delete secret git-tokens git-tls git-cred gar-cred --ignore-not-found")?;
    world.kubectl("delete configmap sample-k8s-kube-scheduler --ignore-not-found")?;
    until("all objects to be gone", || {
        let left = world.new_objects()?;
        ensure!(left.is_empty(), "remaining: {}", left.join(", "));
        Ok(Some(()))
    })
    .context("uninstalling left objects behind")
}
