//! The command lines of `undo`, `restore` and `undelete`.

use clap::Args;
use gitcd::history::when::When;
use gitcd::secrecy::SecretKinds;

use crate::cluster::Cluster;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku undo 3fa91c20d4                        what one commit changed
  trishanku undo --since=10m -n shop               everything that changed in a namespace
  trishanku undo --by=helm --since=1h --dry-run    what one program changed
  trishanku undo --by=jane --since=1h              what one user changed, if commits name users
  trishanku undo --since=10m deploy/web -n shop    one object

Fields that were edited later keep their values. The changes are requests to kube-apiserver, so they become commits, which can be
undone as well. Exits with 1 if something could not be undone; run it again to continue.")]
pub(crate) struct Undo {
    /// Commits to undo, by their IDs as in `trishanku log`, and objects, KIND/NAME [default: all objects]
    #[arg(value_name = "COMMIT|OBJECT")]
    pub(super) words: Vec<String>,
    /// Only changes of this user, field manager, client or author, as `trishanku log` shows them
    #[arg(long, value_name = "USER")]
    pub(super) by: Option<String>,
    /// All changes since this moment: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN", value_parser = When::parse)]
    pub(super) since: Option<When>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku restore deploy/web -n shop --to=10m    one object
  trishanku restore -n shop --to='2026-11-22 15:04'
  trishanku restore --all --to=4711 --dry-run      everything, as at revision 4711

Objects become as they were, whole; edits that are made while the command runs stay. Objects that were created since stay unless
--prune is given. To keep other later edits, use `trishanku undo`.")]
pub(crate) struct Restore {
    /// Objects: KIND/NAME, KIND NAME, or KIND for all of them
    #[arg(value_name = "OBJECT", required_unless_present_any = ["all", "namespace"])]
    pub(super) objects: Vec<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["objects", "namespace"])]
    pub(super) all: bool,
    /// The moment: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN", value_parser = When::parse)]
    pub(super) to: When,
    /// Delete objects that were created since
    #[arg(long)]
    pub(super) prune: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku undelete deploy/web -n shop        one object
  trishanku undelete ns/shop                   a namespace with its content
  trishanku undelete crd/gauges.rain.org       a definition with its objects
  trishanku undelete -n shop --since=10m       everything that was deleted in a namespace

Each object comes back as it was before its last deletion.")]
pub(crate) struct Undelete {
    /// Objects: KIND/NAME, or KIND NAME
    #[arg(value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// Without objects: everything that was deleted since this moment: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN", value_parser = When::parse, required_unless_present = "objects")]
    pub(super) since: Option<When>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of all three commands.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Common {
    /// Namespace of the objects; without objects, everything in it [default: default, for objects]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Print the plan, with what kube-apiserver would reject, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask; required if standard input is not a terminal
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Delete and create objects whose immutable fields differ; never volumes, claims, namespaces and definitions
    #[arg(long)]
    pub(super) recreate: bool,
    /// Do not shorten long values
    #[arg(long)]
    pub(super) whole: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Kinds that are hidden like Secrets, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    pub(super) secret_kinds: SecretKinds,
    #[command(flatten)]
    pub(super) cluster: Cluster,
}
