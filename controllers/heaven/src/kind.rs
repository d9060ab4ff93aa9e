//! Kinds whose objects are heavens.

use kube::core::object::HasStatus;
use trishanku_api::{TrishankuHeaven, TrishankuHeavenStatus};
use trishanku_framework::StaticKind;
use trishanku_heaven_plan::HeavenParts;
use trishanku_heaven_plan::workload::{Deployments, HEAVEN, Workload};

/// A kind whose objects are heavens: a workload with a kube-apiserver on a branch of its own beside each pod.
///
/// [`heavens`](crate::heavens) creates the controller of such a kind. It manages its objects as it manages a
/// [`TrishankuHeaven`]: certificates, entry points, claims, the Git host's Service, the workload, the status of the
/// branches, and a deletion that waits for the last push. `docs/write-a-heaven.md` shows three kinds.
pub trait HeavenKind: StaticKind + HasStatus<Status = TrishankuHeavenStatus> {
    /// The kind of the objects that run the pods.
    type Workload: Workload;

    /// A label of the pods, whose value is the name of the heaven. No other kind may have the same label: it selects the
    /// pods.
    const LABEL: &'static str;

    /// Returns what the heaven of this name consists of. Must depend on the metadata and the spec only.
    fn parts<'s>(&'s self, name: &'s str) -> HeavenParts<'s>;
}

impl HeavenKind for TrishankuHeaven {
    type Workload = Deployments;

    const LABEL: &'static str = HEAVEN;

    fn parts<'s>(&'s self, name: &'s str) -> HeavenParts<'s> {
        HeavenParts::of_spec(name, &self.spec)
    }
}

/// Returns what a heaven consists of.
pub(crate) fn parts_of<K: HeavenKind>(heaven: &K) -> HeavenParts<'_> {
    heaven.parts(heaven.meta().name.as_deref().unwrap_or_default())
}
