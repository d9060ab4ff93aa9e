//! What was acknowledged while things went wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use trishanku_e2e::wait::until_within;

use super::Deadline;
use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{Heaven, World};

/// A heaven that nothing is wrong with takes a write within this time, also on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(20);

/// What was acknowledged, and has to be there in the end.
#[derive(Default)]
pub(super) struct Ledger {
    acknowledged: BTreeSet<String>,
    refused: usize,
    next: usize,
}

/// An object, and the heaven where it was made.
pub(super) struct Made {
    pub(super) heaven: String,
    pub(super) name: String,
}

impl Ledger {
    /// Makes an object at each of these heavens. They are those that work on, so each has to take it.
    pub(super) fn write_at(&mut self, heavens: &[&Heaven<'_>]) -> anyhow::Result<Vec<Made>> {
        let mut made = Vec::new();
        for heaven in heavens {
            let what = format!("{} to take a write", heaven.name());
            let name = until_within(&what, AT_ONCE, || self.write(heaven).map(Some))?;
            made.push(Made { heaven: heaven.name().to_owned(), name });
        }
        Ok(made)
    }

    /// Makes an object at each heaven by way of the host cluster, as soon as that can be done, and by the deadline.
    pub(super) fn write_everywhere(&mut self, world: &World, deadline: Deadline) -> anyhow::Result<()> {
        for name in [CONTROLLERS, SCHEDULERS] {
            until_within(&format!("{name} to take a write"), deadline.left(), || {
                self.write(&world.heaven("default", name, "sample-k8s-admin")?).map(Some)
            })?;
        }
        Ok(())
    }

    fn write(&mut self, heaven: &Heaven<'_>) -> anyhow::Result<String> {
        // One that was refused may be there all the same, so no name comes twice.
        let name = format!("chaos-{:05}", self.next);
        self.next += 1;
        let made = heaven.kubectl(&format!("create configmap {name} --request-timeout=10s"));
        made.inspect_err(|_| self.refused += 1)?;
        self.acknowledged.insert(name.clone());
        Ok(name)
    }

    /// Whether all that was acknowledged is at every heaven.
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

    /// A number that was not there before the last write.
    pub(super) fn number(&self) -> usize {
        self.next
    }

    /// How many writes were acknowledged, and how many were refused.
    pub(super) fn figures(&self) -> (usize, usize) {
        (self.acknowledged.len(), self.refused)
    }
}
