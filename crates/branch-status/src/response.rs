//! Queries pods, and selects the response that counts.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use trishanku_heaven_plan::STATUS_PORT;

use crate::answer::Branch;
use crate::ask::{Identity, ask};

/// The response of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodResponse {
    /// Its name.
    pub(crate) pod: String,
    pub(crate) answer: Result<Branch, String>,
    /// Its creation time, if it has not started.
    pub(crate) pending_since: Option<Timestamp>,
}

impl PodResponse {
    /// Queries a pod.
    pub(crate) async fn of(pod: &Pod, identity: Option<&Identity>) -> Self {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            answer: look_at(pod, identity).await,
            pending_since: made.filter(|_| phase(pod) == "Pending"),
        }
    }
}

async fn look_at(pod: &Pod, identity: Option<&Identity>) -> Result<Branch, String> {
    let annotations = pod.metadata.annotations.as_ref();
    let port = annotations.and_then(|annotations| annotations.get(STATUS_PORT)?.parse().ok());
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    match (address, port, identity) {
        (Some(address), Some(port), Some(identity)) => ask(address, port, identity).await,
        (None, ..) => Err("its pod has no address yet".to_owned()),
        (_, None, _) => Err(format!("its pod has no annotation {STATUS_PORT}")),
        (.., None) => Err("there are no certificates for the request".to_owned()),
    }
}

/// The phase of a pod; a new one is pending.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Selects the worst response of replicas that have a branch each: an error of a pod that has started, otherwise that of a
/// branch that cannot be written, otherwise one with unpushed commits, otherwise the error of a pod that has not started,
/// otherwise one that is not synchronized.
pub(crate) fn worst(answers: Vec<PodResponse>) -> Option<PodResponse> {
    answers.into_iter().min_by_key(|PodResponse { answer, pending_since, .. }| match answer {
        Err(_) if pending_since.is_none() => 0,
        Ok(branch) if !branch.ready().is => 1,
        Ok(branch) if branch.unpushed().is_some() => 2,
        Err(_) => 3,
        Ok(branch) if branch.synced().is_some_and(|synced| !synced.is) => 4,
        Ok(_) => 5,
    })
}

/// Selects a response: that of the writer, preferably of one with unpushed commits, otherwise another response, otherwise
/// an error.
pub(crate) fn best(answers: Vec<PodResponse>) -> Option<PodResponse> {
    answers.into_iter().min_by_key(|response| match &response.answer {
        Ok(branch) if branch.is_writer() => u8::from(branch.unpushed().is_none()),
        Ok(_) => 2,
        Err(_) => 3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Remote;

    #[test]
    fn of_several_pods_the_one_that_writes_counts() {
        let branch = |role: &str, head: &str| Branch {
            role: role.to_owned(),
            head: head.to_owned(),
            remotes: vec![Remote { pushed: Some("a".to_owned()), ..Remote::default() }],
            ..Branch::default()
        };
        let away = || Err("refused".to_owned());
        let best = |answers: Vec<Result<Branch, String>>| {
            let answers =
                answers.into_iter().map(|answer| PodResponse { pod: "pod".to_owned(), answer, pending_since: None });
            super::best(answers.collect()).map(|response| response.answer)
        };
        assert_eq!(best(Vec::new()), None);
        assert_eq!(best(vec![away()]), Some(away()));
        assert_eq!(best(vec![away(), Ok(branch("writer", "a"))]), Some(Ok(branch("writer", "a"))));
        let (deposed, writer) = (branch("deposed", "b"), branch("writer", "a"));
        assert_eq!(best(vec![away(), Ok(deposed.clone()), Ok(writer.clone())]), Some(Ok(writer.clone())));
        assert_eq!(best(vec![away(), Ok(deposed.clone())]), Some(Ok(deposed)));
        // Replicas without a lease: commits that only one of them has are not pushed.
        let behind = branch("writer", "b");
        assert_eq!(best(vec![Ok(writer), Ok(behind.clone())]), Some(Ok(behind)));
    }

    #[test]
    fn of_branches_of_their_own_the_one_with_most_problems_counts() {
        let pushed = |pushed: &str| Branch {
            role: "writer".to_owned(),
            head: "b".to_owned(),
            remotes: vec![Remote {
                pushed: Some(pushed.to_owned()),
                condition: "Synced".to_owned(),
                ..Remote::default()
            }],
            ..Branch::default()
        };
        let full = Branch { writes_refused: Some("the disk is full".to_owned()), ..pushed("b") };
        let away = pushed("b");
        let apart =
            Branch { remotes: vec![Remote { condition: "Denied".to_owned(), ..away.remotes[0].clone() }], ..away };
        let pending = Some(Timestamp::UNIX_EPOCH);
        let answers = [
            (Ok(pushed("b")), None),
            (Ok(apart), None),
            (Err("no address".to_owned()), pending),
            (Ok(pushed("a")), None),
            (Ok(full), None),
            (Err("refused".to_owned()), None),
        ];
        // The last one is the worst, the one before it the second, and so on.
        for count in 1..=answers.len() {
            let named = answers[..count].iter().enumerate().map(|(at, (answer, pending_since))| PodResponse {
                pod: at.to_string(),
                answer: answer.clone(),
                pending_since: *pending_since,
            });
            let found = worst(named.collect()).unwrap();
            assert_eq!(found.pod, (count - 1).to_string());
        }
        assert_eq!(worst(Vec::new()), None);
    }
}
