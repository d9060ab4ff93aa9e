//! Conditions for the deletion of a heaven; pure.

use k8s_openapi::jiff::Timestamp;
use time::{Duration, OffsetDateTime};
use trishanku_api::REPOSITORY_READY;
use trishanku_branch_status::answer::Branch;

use crate::kind::parts_of;
use crate::{DELETE_UNPUSHED, HeavenKind};

/// Whether a heaven pushes to a remote, so that deletion must wait for the last push.
pub(crate) fn pushes(object: &impl HeavenKind) -> bool {
    let (parts, annotations) = (parts_of(object), object.meta().annotations.as_ref());
    let deletes_unpushed =
        annotations.and_then(|annotations| annotations.get(DELETE_UNPUSHED)).is_some_and(|value| value == "true");
    let Some(gitcd) = parts.gitcd.filter(|_| !deletes_unpushed && !parts.skips_app) else { return false };
    let has_remotes = gitcd.git.as_ref().is_some_and(|git| !git.remotes.is_empty());
    let pull = gitcd.pull.as_ref();
    let is_followed = pull.is_some() || gitcd.writer_lease.is_some();
    has_remotes && is_followed && pull.and_then(|pull| pull.push_after_merge).unwrap_or(true)
}

/// Whether its repository outlives its pod.
pub(crate) fn keeps(object: &impl HeavenKind) -> bool {
    let storage = parts_of(object).gitcd.and_then(|gitcd| gitcd.storage.as_ref());
    storage.is_some_and(|storage| storage.volume_claim.is_some())
}

/// Whether a pod of it has ever served.
pub(crate) fn has_served(object: &impl HeavenKind) -> bool {
    let mut conditions = object.status().into_iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == REPOSITORY_READY)
}

/// How long deletion waits for a pod that has not started.
const PENDING: Duration = Duration::minutes(15);

/// The time at which deletion stops waiting for pods that have not started since their creation, or since the deletion of
/// the heaven.
pub(crate) fn gives_up(object: &impl HeavenKind, pending_since: Timestamp) -> Option<OffsetDateTime> {
    let deleted = object.meta().deletion_timestamp.as_ref()?.0;
    let since = OffsetDateTime::from_unix_timestamp(deleted.max(pending_since).as_second()).ok()?;
    Some(since + PENDING)
}

/// Returns what deletion must wait for; `None` if it may proceed.
pub(crate) fn waits(keeps: bool, asked: Option<Result<&Branch, &String>>, last: Option<&Branch>) -> Option<String> {
    match asked {
        Some(Ok(branch)) => branch.unpushed(),
        Some(Err(error)) => Some(format!("cannot ask gitcd whether everything is pushed: {error}")),
        // The data of an emptyDir is lost with its pod.
        None if !keeps => None,
        None => match last.map(Branch::unpushed) {
            Some(unpushed) => unpushed,
            None => Some("its volume claim may have unpushed commits, and there is no pod to query".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_pushed_is_waited_for_and_what_cannot_be_is_not() {
        let pushed: Branch =
            serde_json::from_value(json!({"head": "a", "remotes": [{"name": "o", "pushed": "a"}]})).unwrap();
        let behind = Branch { head: "b".to_owned(), ..pushed.clone() };
        let error = "no answer".to_owned();
        assert_eq!(waits(true, Some(Ok(&pushed)), None), None);
        assert!(waits(true, Some(Ok(&behind)), None).unwrap().contains("o does not have commit b"));
        assert!(waits(false, Some(Err(&error)), Some(&pushed)).unwrap().contains("no answer"));
        assert_eq!((waits(false, None, None), waits(true, None, Some(&pushed))), (None, None));
        assert!(
            waits(true, None, Some(&behind)).is_some() && waits(true, None, None).unwrap().contains("volume claim")
        );
    }
}
