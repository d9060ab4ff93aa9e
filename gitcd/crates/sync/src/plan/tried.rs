//! Dry runs of files from external commits in a merge.

use bytes::Bytes;
use git2::Oid;
use gitcd_merge::{Merged, Outcome};

use super::origins::Brought;
use super::{PlanError, Planner};
use crate::dry_run::{Trial, Verdict};

impl Planner<'_, '_> {
    /// Applies the verdict on a file from an external commit, or requests a dry run. Returns whether the file is accepted so far.
    pub(super) fn is_let_in(
        &mut self,
        (relative, key): (&[u8], &[u8]),
        blob: Option<Oid>,
        merged: &mut Merged,
        (their_value, as_is): (&mut Option<Bytes>, &mut bool),
    ) -> Result<bool, PlanError> {
        let (Some(verdicts), Some(Brought::By(_) | Brought::Removed)) =
            (self.rules.verdicts, self.origins.get(relative))
        else {
            return Ok(true);
        };
        let object: Bytes = match &merged.outcome {
            Outcome::Theirs => their_value.clone().unwrap_or_default(),
            Outcome::New(value) => value.clone().into(),
            // A deletion needs no dry run: no object could be invalid.
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
                // The reason refers to lines of the author's file.
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
