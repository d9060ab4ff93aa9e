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

/// Refuses a placeholder where nothing replaces it, and replicas that would write to one branch without taking turns.
pub(super) fn check(gitcd: &Gitcd, branch: &Branch, place: &Place) -> Result<(), PlanError> {
    let own = [("data", &branch.data), ("metadata", &branch.metadata)];
    let own = own.map(|(name, value)| (format!("gitcd.git.branches.{name}"), value));
    if place.replica.is_none() {
        let remotes = branch.remotes.iter().enumerate();
        let remotes = remotes.map(|(at, remote)| (format!("gitcd.git.remotes[{at}].branches.data"), &remote.data));
        return match own.into_iter().chain(remotes).find(|(_, value)| value.contains(REPLICA)) {
            None => Ok(()),
            Some((field, value)) => {
                let problem = "has $(REPLICA), but the replicas of this kind of heaven have no names that last: write a \
                               name without it";
                Err(PlanError::value(field, value, problem))
            }
        };
    }
    if gitcd.writer_lease.is_none() {
        for (field, value) in own {
            if !value.contains(REPLICA) {
                let problem = "is the branch of all replicas: add $(REPLICA) to its name, so that each has its own, or set \
                               gitcd.writerLease, so that one of them writes at a time";
                return Err(PlanError::value(field, value, problem));
            }
        }
    }
    let claim = gitcd.storage.as_ref().and_then(|storage| storage.volume_claim.as_ref());
    if let Some(name) = claim.and_then(|claim| claim.name.as_deref()) {
        let problem = "is one claim for all replicas, whose repositories must be separate: set size instead of name";
        return Err(PlanError::value("gitcd.storage.volumeClaim.name", name, problem));
    }
    Ok(())
}
