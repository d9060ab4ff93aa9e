//! The reconciler: plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use trishanku_framework::apply::{Owned, PART_OF};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Error, Key, Kinds, Reported, Result, StatusReconciler};

use super::kind::{HelloCluster, HelloClusterStatus};
use super::objects::{Identity, group_objects, role_objects};

/// Keeps the objects of each cluster.
pub struct HelloReconciler {
    accounts: Owned<ServiceAccount>,
    bindings: Owned<RoleBinding>,
    budgets: Owned<PodDisruptionBudget>,
    maps: Owned<ConfigMap>,
    servers: Owned<StatefulSet>,
    services: Owned<Service>,
}

impl HelloReconciler {
    /// Creates a reconciler with the kinds that it owns: a change of such an object reconciles its owner.
    pub fn new(kinds: &mut Kinds<'_>) -> Self {
        Self {
            accounts: kinds.owned_selecting(PART_OF),
            bindings: kinds.owned_selecting(PART_OF),
            budgets: kinds.owned_selecting(PART_OF),
            maps: kinds.owned_selecting(PART_OF),
            servers: kinds.owned_selecting(PART_OF),
            services: kinds.owned_selecting(PART_OF),
        }
    }
}

impl StatusReconciler for HelloReconciler {
    type Object = HelloCluster;
    type Error = Error;

    async fn reconcile(
        &self,
        cluster: Arc<HelloCluster>,
        _: &mut HelloClusterStatus,
        context: Context,
    ) -> Reported<Action> {
        let (spec, namespace) = (&cluster.spec, context.key.namespace().unwrap_or_default());
        let identity = Identity { cluster: context.key.name(), namespace };
        let missing = || Error::terminal("NoServers", "spec.servers is missing");
        let role = spec.servers.as_ref().ok_or_else(missing)?;
        // Before anything is written: a group with an error changes no other.
        let groups = role.role_groups.iter().map(|(name, group)| group_objects(identity, spec, role, (name, group)));
        let groups: Result<Vec<_>, _> = groups.collect();
        let groups = groups.map_err(|error| Error::terminal("InvalidConfig", error))?;
        let common = role_objects(identity, spec, role);
        let mut set = context.apply_set(&*cluster);
        set.apply(common.account, &self.accounts).await?;
        set.apply(common.binding, &self.bindings).await?;
        set.apply(common.service, &self.services).await?;
        for group in groups {
            set.apply(group.service, &self.services).await?;
            set.apply(group.map, &self.maps).await?;
            set.apply(group.servers, &self.servers).await?;
        }
        if let Some(budget) = common.budget {
            set.apply(budget, &self.budgets).await?;
        }
        set.prune_all().await?;
        let servers = role.role_groups.keys().map(|group| {
            let key = Key::namespaced(namespace, &identity.of_group(group));
            (group.as_str(), self.servers.get(&key))
        });
        Ok((report(&cluster, &servers.collect::<Vec<_>>()), Action::Change))
    }
}

/// Returns what the servers of the groups say about the cluster.
pub fn report(cluster: &HelloCluster, groups: &[(&str, Option<Arc<StatefulSet>>)]) -> Report {
    let unready = groups.iter().filter_map(|(group, servers)| {
        let wanted = servers.as_ref().and_then(|servers| servers.spec.as_ref()?.replicas).unwrap_or(1);
        // Nothing is known of what its controller has not seen.
        let current = servers.as_ref().filter(|servers| {
            let seen = servers.status.as_ref().and_then(|status| status.observed_generation);
            seen >= servers.metadata.generation
        });
        let done = current.and_then(|servers| servers.status.as_ref()).map(|status| {
            let [ready, updated] = [status.ready_replicas, status.updated_replicas].map(Option::unwrap_or_default);
            ready.min(updated)
        });
        let ready = done.unwrap_or(0);
        (done != Some(wanted)).then(|| format!("{ready} of {wanted} servers of role group {group} are ready"))
    });
    let unready: Vec<String> = unready.collect();
    if !unready.is_empty() {
        Report::reconciling("RollingOut", unready.join("; "))
    } else if cluster.spec.cluster_operation.stopped {
        Report::stalled("Stopped", "spec.clusterOperation.stopped is true").warns(false)
    } else {
        Report::ready("ServersReady", "")
    }
}
