//! Acknowledged writes during faults.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use trishanku_e2e::wait::until_within;

use super::Deadline;
use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{Heaven, World};

/// Limit of a write to a heaven without a fault, also on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Acknowledged objects, which must exist in the end.
#[derive(Default)]
pub(super) struct Ledger {
    acknowledged: BTreeSet<String>,
    refused: usize,
    next: usize,
}

/// An object, and the heaven where it was created.
pub(super) struct Made {
    pub(super) heaven: String,
    pub(super) name: String,
}

impl Ledger {
    /// Creates an object at each of these heavens, which work and so have to accept it.
    pub(super) fn write_at(&mut self, heavens: &[&Heaven<'_>]) -> anyhow::Result<Vec<Made>> {
        let mut made = Vec::new();
        for heaven in heavens {
            let what = format!("{} to accept a write", heaven.name());
            let name = until_within(&what, AT_ONCE, || self.write(heaven).map(Some))?;
            made.push(Made { heaven: heaven.name().to_owned(), name });
        }
        Ok(made)
    }

    /// Creates an object at each heaven through the host cluster, by the deadline.
    pub(super) fn write_everywhere(&mut self, world: &World, deadline: Deadline) -> anyhow::Result<()> {
        for name in [CONTROLLERS, SCHEDULERS] {
            until_within(&format!("{name} to accept a write"), deadline.left(), || {
                self.write(&world.heaven("default", name, "sample-k8s-admin")?).map(Some)
            })?;
        }
        Ok(())
    }

    fn write(&mut self, heaven: &Heaven<'_>) -> anyhow::Result<String> {
        // A refused object may exist anyway, so names are never reused.
        let name = format!("chaos-{:05}", self.next);
        self.next += 1;
        let made = heaven.kubectl(&format!("create configmap {name} --request-timeout=10s"));
        made.inspect_err(|_| self.refused += 1)?;
        self.acknowledged.insert(name.clone());
        Ok(name)
    }

    /// Asserts that every heaven has all acknowledged objects.
    pub(super) fn check(&self, world: &World) -> anyhow::Result<()> {
        for heaven in world.heavens()? {
            let found = heaven.kubectl("get configmaps --output=name")?;
            let found: BTreeSet<_> =
                found.lines().filter_map(|line| line.strip_prefix("configmap/")).map(ToOwned::to_owned).collect();
            let missing: Vec<_> = self.acknowledged.difference(&found).collect();
            ensure!(missing.is_empty(), "lost at {}: {missing:?}", heaven.name());
        }
        Ok(())
    }

    /// A number greater than those of all earlier writes.
    pub(super) fn number(&self) -> usize {
        self.next
    }

    /// The numbers of acknowledged and refused writes.
    pub(super) fn figures(&self) -> (usize, usize) {
        (self.acknowledged.len(), self.refused)
    }
}
