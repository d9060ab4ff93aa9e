//! What a kube-apiserver says of files of people, in a merge.

use bytes::Bytes;
use git2::Oid;
use gitcd_merge::{Merged, Outcome};

use super::origins::Brought;
use super::{PlanError, Planner};
use crate::dry_run::{Trial, Verdict};

impl Planner<'_, '_> {
    /// Lets the verdict on a file that a person brought decide what enters, or asks for one. Returns whether anything enters.
    pub(super) fn is_let_in(
        &mut self,
        (relative, key): (&[u8], &[u8]),
        blob: Option<Oid>,
        merged: &mut Merged,
        (their_value, as_is): (&mut Option<Bytes>, &mut bool),
    ) -> Result<bool, PlanError> {
        let (Some(verdicts), Some(Brought::By(_))) = (self.rules.verdicts, self.origins.get(relative)) else {
            return Ok(true);
        };
        let object: Bytes = match &merged.outcome {
            Outcome::Theirs => their_value.clone().unwrap_or_default(),
            Outcome::New(value) => value.clone().into(),
            // A deletion is not tried: there is no object that could be invalid.
            Outcome::Ours | Outcome::Deleted => return Ok(true),
        };
        match verdicts.get(relative).filter(|(tried, _)| *tried == object) {
            None => self.trials.push(Trial { relative: relative.to_vec(), object }),
            Some((_, Verdict::Accepted | Verdict::Skipped)) => {}
            Some((_, Verdict::Completed(completed))) => {
                (*their_value, *as_is, merged.outcome) = (Some(completed.clone()), false, Outcome::Theirs);
            }
            Some((_, Verdict::Refused(refusal))) => {
                let exposure = self.rules.secret_kinds.of_change(relative, [Some(&object), None]);
                // With lines as its author wrote them.
                let file = blob.map(|blob| self.file(relative, blob)).transpose()?;
                let reason = refusal.reason(file.as_ref().map_or(&object, |file| file.data()), exposure);
                drop(file);
                self.reject_file(relative, key, reason);
                return Ok(false);
            }
        }
        Ok(true)
    }
}
