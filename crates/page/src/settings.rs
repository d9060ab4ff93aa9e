//! What the page shows.

use gitcd_merge::secrecy::SecretKinds;
use gitcd_repo::branch::Config;

use crate::catalog::Catalog;

/// What the page shows.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The branch.
    pub branch: Config,
    /// Whether the key prefix is derived from the keys, instead of taken from `branch`.
    pub find_prefix: bool,
    /// The resources of Kubernetes.
    pub catalog: Catalog,
    /// Kinds that are hidden like Secrets.
    pub secret_kinds: SecretKinds,
    /// The command line that reverts a commit, up to the commit's ID, such as `trishanku undo`.
    pub undo_command: String,
}
