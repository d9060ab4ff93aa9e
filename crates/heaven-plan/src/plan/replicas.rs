//! A branch for each replica.

use trishanku_api::Gitcd;

use super::branch::Branch;
use super::{Place, PlanError};

/// The placeholder for the replica in branch names: the name of a pod of a `StatefulSet`, the node of a pod of a
/// `DaemonSet`. For example, `agents/$(REPLICA)` is the branch `agents/web-0` in the pod `web-0`. Kubelet replaces it.
pub const REPLICA: &str = "$(REPLICA)";

/// Whether each replica has a branch of its own.
pub(super) fn have_branches(branch: &Branch) -> bool {
    branch.data.contains(REPLICA)
}

/// Rejects a placeholder in a kind of workload without replica names, and replicas that would write to one branch without a
/// writer lease.
pub(super) fn check(gitcd: &Gitcd, branch: &Branch, place: &Place) -> Result<(), PlanError> {
    let own = [("data", &branch.data), ("metadata", &branch.metadata)];
    let own = own.map(|(name, value)| (format!("gitcd.git.branches.{name}"), value));
    if place.replica.is_none() {
        let remotes = branch.remotes.iter().enumerate();
        let remotes = remotes.map(|(at, remote)| (format!("gitcd.git.remotes[{at}].branches.data"), &remote.data));
        return match own.into_iter().chain(remotes).find(|(_, value)| value.contains(REPLICA)) {
            None => Ok(()),
            Some((field, value)) => {
                let problem = "contains $(REPLICA), but pods of this kind of heaven have no stable names: remove it";
                Err(PlanError::value(field, value, problem))
            }
        };
    }
    if gitcd.writer_lease.is_none() {
        for (field, value) in own {
            if !value.contains(REPLICA) {
                let problem = "would be written by all replicas: add $(REPLICA) to give each its own branch, or set \
                               gitcd.writerLease to allow one writer at a time";
                return Err(PlanError::value(field, value, problem));
            }
        }
    }
    if let Some(host) = gitcd.host.as_ref().filter(|_| have_branches(branch)) {
        let problem =
            "would lead to any of the replicas, whose branches differ: remove the host, and let them push to a remote";
        return Err(PlanError::value("gitcd.host.tokensSecretName", &host.tokens_secret_name, problem));
    }
    let claim = gitcd.storage.as_ref().and_then(|storage| storage.volume_claim.as_ref());
    if let Some(name) = claim.and_then(|claim| claim.name.as_deref()) {
        let problem = "is shared by all replicas, but each needs its own repository: set size instead of name";
        return Err(PlanError::value("gitcd.storage.volumeClaim.name", name, problem));
    }
    Ok(())
}
