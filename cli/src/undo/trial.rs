//! Asks kube-apiserver what it would reject, without changing anything.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::StreamExt as _;
use trishanku_undo::{Action, Plan, Step};

use super::api::{Api, ApiError};
use super::rejection;

/// Concurrent requests.
const AT_A_TIME: usize = 8;

/// What kube-apiserver would answer to the steps of a plan.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Why it would reject steps, by key.
    pub(super) rejected: BTreeMap<String, String>,
    /// The keys of objects that are deleted and created again, because they have fields that cannot be changed.
    pub(super) recreated: BTreeSet<String>,
}

/// The answer to a step.
enum Answer {
    Rejected(String),
    Recreated,
}

/// Dry-runs each step whose namespace, kind and owners exist. With `recreate`, fields that cannot be changed are no reason for a
/// rejection where the object may be deleted and created again.
pub(super) async fn run(api: &Api, plan: &Plan, recreate: bool) -> Tried {
    let created: HashSet<&str> =
        plan.requests().filter(|step| is_creation(step)).map(|step| &*step.object.key).collect();
    let uids: HashSet<String> = plan.requests().filter_map(Step::old_uid).collect();
    let tried = plan.requests().filter(|step| {
        let namespace = step.object.namespace.as_deref().map(|name| format!("namespaces/{name}"));
        let waits_for_owner = step
            .target()
            .is_some_and(|object| trishanku_undo::owners::of(object).iter().any(|(_, uid)| uids.contains(uid)));
        !waits_for_owner && !namespace.is_some_and(|namespace| created.contains(&*namespace))
    });
    let tried = tried.map(async |step: &Step| Some((step.object.key.clone(), problem(api, step, recreate).await?)));
    let mut answers = futures::stream::iter(tried).buffer_unordered(AT_A_TIME);
    let mut all = Tried::default();
    while let Some(answer) = answers.next().await {
        match answer {
            Some((key, Answer::Rejected(reason))) => drop(all.rejected.insert(key, reason)),
            Some((key, Answer::Recreated)) => drop(all.recreated.insert(key)),
            None => {}
        }
    }
    all
}

fn is_creation(step: &Step) -> bool {
    matches!(step.action, Action::Create { .. })
}

async fn problem(api: &Api, step: &Step, recreate: bool) -> Option<Answer> {
    let identity = &step.object;
    let mut target = step.target()?.clone();
    loop {
        let tried = match step.action {
            Action::Create { .. } => api.create(identity, &target, true).await,
            Action::Update { .. } => api.replace(identity, &target, true).await,
            _ => api.delete(identity, &target, true).await,
        };
        match tried {
            // The definition of the kind is in the plan, or the object changed since: the real step handles both.
            Ok(_) | Err(ApiError::NotServed { .. }) => return None,
            Err(error) if error.is_reason("Conflict") => return None,
            Err(error) if rejection::is_immutable(&error) => {
                return Some(if recreate && rejection::may_recreate(identity) {
                    Answer::Recreated
                } else {
                    Answer::Rejected(rejection::immutable(identity, &error))
                });
            }
            Err(error) if rejection::without_allocation(&error, &mut target).is_some() => {}
            Err(error) => return Some(Answer::Rejected(rejection::explained(&error))),
        }
    }
}
