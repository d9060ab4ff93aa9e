//! What the status of a heaven says after a reconcile; pure.

use time::OffsetDateTime;
use trishanku_api::{AVAILABLE, BranchStatus, CERTIFICATES_READY, GIT_HOST_ENCRYPTED, TrishankuHeavenStatus};
use trishanku_framework::status::Report;
use trishanku_heaven_plan::HeavenParts;
use trishanku_heaven_plan::workload::{self, State};

use crate::Error;
use crate::certificates::IssueError;

/// Results along the way, which are reported even if a later step fails.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) certificates: Option<State>,
    pub(crate) available: Option<State>,
    pub(crate) look_again: Option<OffsetDateTime>,
}

impl Seen {
    /// Certificates were issued: user-supplied ones may have expired.
    pub(crate) fn certificates_issued(&mut self, expired: &[String]) {
        let state = if expired.is_empty() {
            State::new(true, "Valid", "")
        } else {
            let named = expired.join(", ");
            State::new(
                false,
                "Expired",
                format!("user-supplied Secrets have expired certificates; replace them: {named}"),
            )
        };
        self.certificates = Some(state);
    }

    /// Certificates could not be issued.
    pub(crate) fn certificates_failed(&mut self, error: &IssueError) {
        let reason = match error {
            IssueError::Authority { .. } => "CertificateAuthorityUnusable",
            IssueError::Incomplete { .. } => "SecretIncomplete",
            _ => "CertificatesFailed",
        };
        self.certificates = Some(State::new(false, reason, error.to_string()));
    }
}

/// Writes the conditions and the branch of a reconcile into the status.
pub(crate) fn show(
    status: &mut TrishankuHeavenStatus,
    parts: &HeavenParts<'_>,
    generation: Option<i64>,
    seen: &Seen,
    host: &Result<Option<State>, Error>,
) {
    if seen.certificates.is_some() {
        workload::set(&mut status.conditions, CERTIFICATES_READY, seen.certificates.as_ref(), generation);
    }
    // If its Secret cannot be read, the condition stays as it is.
    if let Ok(host) = host {
        let host = host.as_ref().filter(|_| !parts.skips_app);
        workload::set(&mut status.conditions, GIT_HOST_ENCRYPTED, host, generation);
    }
    if seen.available.is_some() || parts.skips_app {
        workload::set(&mut status.conditions, AVAILABLE, seen.available.as_ref(), generation);
    }
    let branch = BranchStatus { name: parts.branch().to_owned(), ..BranchStatus::default() };
    status.branch = (!parts.skips_app).then_some(branch);
}

/// The conditions of a heaven that was applied.
pub(crate) fn of_applied(parts: &HeavenParts<'_>, seen: &Seen) -> Report {
    if let Some(why) = parts.suspended {
        return Report::stalled("Suspended", why).warns(false);
    }
    match [&seen.certificates, &seen.available].into_iter().flatten().find(|state| !state.is) {
        // A rollout is nothing wrong. A Secret that is missing or has expired is, and so is a rollout that is stuck.
        Some(state) if state.has_failed() => Report::stalled(state.reason.clone(), state.message.clone()),
        Some(state) => {
            let warns = seen.certificates.as_ref().is_some_and(|certificates| !certificates.is) || state.is_stuck();
            Report::reconciling(state.reason.clone(), state.message.clone()).warns(warns)
        }
        None if seen.available.is_none() && !parts.skips_app => {
            Report::reconciling("Applied", "the workload was just created")
        }
        None => Report::ready("Succeeded", ""),
    }
}
