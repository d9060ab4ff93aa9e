//! The merge of one key: its base, the check of its file, and its outcome.

use bytes::Bytes;
use git2::Oid;
use gitcd_core::keyspace::Placement;
use gitcd_merge::admit::{self, Admission};
use gitcd_merge::form;
use gitcd_merge::{Outcome, Side, merge};
use gitcd_mvcc::merge::Key;
use gitcd_repo::object;

use super::bases::Base;
use super::edits::{self, Meant, Then};
use super::origins::Brought;
use super::{PlanError, Planner};

impl Planner<'_, '_> {
    /// Plans the change of a key, if theirs brings any. A key whose file is to be checked, and whose origin is unknown, is planned
    /// again once that is found.
    pub(super) fn key(
        &mut self,
        relative: &[u8],
        first_base: Option<Oid>,
        ours: Option<Oid>,
        theirs: Option<Oid>,
    ) -> Result<(), PlanError> {
        let key = self.rules.keys.absolute(relative);
        let Meant { base, then } = self.base(&key, relative, [first_base, ours, theirs])?;
        let is_merged = then == Then::AsMerged;
        let spelling = if is_merged { self.of_two_spellings(relative, &base, ours, theirs)? } else { None };
        if is_merged && base.is(theirs) && spelling != Some(Outcome::Theirs) {
            return Ok(());
        }
        if self.rules.keys.placement(&key) != Placement::Data {
            self.of_one_server(relative, &key, theirs);
            return Ok(());
        }
        if !self.rules.scope.covers(&key) {
            return Ok(());
        }
        self.brings = true;
        if ours == theirs && is_merged {
            return Ok(());
        }
        if ours != theirs && self.of_api_server(relative, &key, theirs) {
            return Ok(());
        }
        let our_value = self.value(relative, ours)?;
        let base_value = match &base {
            // With theirs as the base, a concurrent write here wins over a spelling.
            _ if spelling.is_some() => self.value(relative, theirs)?,
            Base::Blob(blob) | Base::Chosen(blob) => self.value(relative, *blob)?,
            Base::Value(value) => value.clone(),
        };
        let mut their_value = self.value(relative, theirs)?;
        let mut as_is = true;
        if let (Some(value), Some(blob)) = (&their_value, theirs) {
            let before = our_value.as_deref().or(base_value.as_deref());
            let mut is_asked = false;
            let brought = self.origins.get(relative);
            let admission = Admission { schemas: &self.schemas, is_kubernetes: self.is_kubernetes, completes: true };
            let admitted = admission.admit(relative, value, before, || {
                is_asked = true;
                match brought {
                    Some(Brought::By(origin) | Brought::Merged(origin)) => Some(origin),
                    _ => None,
                }
            });
            if brought.is_none() && (is_asked || admitted.is_err() || self.rules.verdicts.is_some()) {
                self.origins.ask(relative, blob);
                return Ok(());
            }
            match admitted {
                Ok(None) => {}
                Ok(Some(completed)) => (their_value, as_is) = (Some(completed.into()), false),
                // Client writes were acknowledged; accept them unvalidated, and values that a merge made of them.
                Err(_) if matches!(brought, Some(Brought::ByStore | Brought::Merged(_))) => {}
                Err(findings) => {
                    let file = self.file(relative, blob)?;
                    let exposure = self.rules.secret_kinds.of_change(relative, [Some(file.data()), None]);
                    let reason = admit::reason(&findings, file.data(), exposure);
                    drop(file);
                    self.reject_file(relative, &key, reason);
                    return Ok(());
                }
            }
        }
        let unchanged_here = base.is(ours);
        let merged = if let Some(outcome) = spelling {
            gitcd_merge::Merged { outcome, conflicts: Vec::new() }
        } else if unchanged_here {
            gitcd_merge::Merged { outcome: Outcome::Theirs, conflicts: Vec::new() }
        } else {
            let side = |value: &'_ Option<Bytes>, blob: Option<Oid>| value.clone().zip(blob);
            let (one, other) = (side(&our_value, ours), side(&their_value, theirs));
            merge(
                &self.schemas,
                self.rules.policy,
                base_value.as_deref(),
                one.as_ref().map(|(value, blob)| Side { value, hash: object::bytes(*blob) }),
                other.as_ref().map(|(value, blob)| Side { value, hash: object::bytes(*blob) }),
            )
        };
        let values = [our_value.as_ref(), their_value.as_ref()];
        let exposure =
            || self.rules.secret_kinds.of_change(relative, values.map(|value| value.map(|value| &value[..])));
        let mut merged = edits::corrected(merged, then, values, exposure);
        if !self.is_let_in((relative, &key), theirs, &mut merged, (&mut their_value, &mut as_is))? {
            return Ok(());
        }
        self.keys.push(Key {
            key: key.into(),
            base: base_value,
            in_ours: ours.is_some(),
            theirs: their_value.zip(theirs.map(object::bytes)),
            as_is,
            outcome: merged.outcome,
            conflicts: merged.conflicts,
        });
        Ok(())
    }

    /// Reads the value of a key, in the form in which the store has it.
    pub(super) fn value(&self, relative: &[u8], blob: Option<Oid>) -> Result<Option<Bytes>, PlanError> {
        let Some(oid) = blob else { return Ok(None) };
        let file = self.file(relative, oid)?;
        let value = form::decode(form::guess(file.data()), file.data());
        let failed = |problem: String| PlanError::Blob { oid, key: relative.escape_ascii().to_string(), problem };
        Ok(Some(value.map_err(|error| failed(error.to_string()))?.into()))
    }

    /// Reads the blob of a file.
    pub(super) fn file(&self, relative: &[u8], oid: Oid) -> Result<git2::OdbObject<'_>, PlanError> {
        let failed = |problem: String| PlanError::Blob { oid, key: relative.escape_ascii().to_string(), problem };
        let object = object::read(&self.odb, oid).map_err(|error| failed(error.message().to_owned()))?;
        if object.kind() != git2::ObjectType::Blob {
            return Err(failed(format!("it is a {}", object.kind().str())));
        }
        Ok(object)
    }
}
