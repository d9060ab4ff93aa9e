//! `gitcd log`, `blame`, `show`, `diff`, `at` and `verify`: a branch and its history.

pub(super) mod at;
pub(super) mod blame;
pub(super) mod diff;
pub(super) mod log;
mod print;
pub(super) mod show;
pub(super) mod verify;

use std::path::PathBuf;

use gitcd_history::History;
use gitcd_history::when::When;
use gitcd_merge::secrecy::{Exposure, SecretKinds};
use gitcd_repo::branch;

use gitcd_server::config::{Branches, DEFAULT_NAME, PerBranch};

/// Flags that select a branch.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// The repository: a bare one, or a folder with one in .git [default: that of the current folder if
    /// gitcd has served it, otherwise gitcd/repo.git in the user's data folder]
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    repo: Option<PathBuf>,
    /// The branch, by its name in the flags of `gitcd serve`
    #[arg(long, default_value = DEFAULT_NAME, value_name = "NAME")]
    branch: String,
    /// Reference of its data [default: refs/heads/main; for another branch refs/heads/NAME]
    #[arg(long, env = "GITCD_DATA_REFERENCE_NAMES", value_name = "MAP")]
    data_reference_names: Option<String>,
    /// Reference of its metadata [default: refs/gitcd/metadata/main; for another branch refs/gitcd/metadata/NAME]
    #[arg(long, env = "GITCD_METADATA_REFERENCE_NAMES", value_name = "MAP")]
    metadata_reference_names: Option<String>,
    /// Prefix of its data keys [default: detected]
    #[arg(long, env = "GITCD_KEY_PREFIXES", value_name = "MAP")]
    key_prefixes: Option<String>,
}

impl Place {
    pub(super) fn open(&self) -> anyhow::Result<History> {
        let branches = self.branches()?;
        let find_prefix = branches.prefixes.of(&self.branch).is_none();
        Ok(History::open(branches.branch(&self.branch), find_prefix)?)
    }

    /// Returns the branch that the flags select.
    pub(super) fn config(&self) -> anyhow::Result<branch::Config> {
        Ok(self.branches()?.branch(&self.branch))
    }

    fn branches(&self) -> anyhow::Result<Branches> {
        Ok(Branches {
            repository: match &self.repo {
                Some(repo) => std::path::absolute(repo)?,
                None => super::repository_here()?,
            },
            data: super::per_branch("data-reference-names", self.data_reference_names.as_deref())?,
            metadata: super::per_branch("metadata-reference-names", self.metadata_reference_names.as_deref())?,
            prefixes: super::per_branch("key-prefixes", self.key_prefixes.as_deref())?,
            ephemeral: PerBranch::default(),
            committer_name: String::new(),
            committer_email: String::new(),
        })
    }
}

/// Flags for the values of secret objects.
#[derive(Debug, clap::Args)]
pub(super) struct Printing {
    /// Print the values of Secrets instead of hiding them
    #[arg(long)]
    show_secrets: bool,
    /// Kinds that are hidden like Secrets, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    secret_kinds: SecretKinds,
}

impl Printing {
    /// Returns how much of a key with these values is printed.
    fn exposure(&self, history: &History, key: &[u8], values: [Option<&[u8]>; 2]) -> Exposure {
        if self.show_secrets {
            return Exposure::Open;
        }
        self.secret_kinds.of_change(history.below_prefix(key), values)
    }
}

/// Prints JSON.
pub(super) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(writeln!(trishanku_stdio::plain_stdout(), "{value:#}")?)
}

/// Notes that a state is not exactly that of the requested revision.
pub(super) fn note(when: When, revision: i64) {
    if let When::Revision(asked) = when
        && asked != revision
    {
        trishanku_stdio::eprintln!(
            "gitcd: revision {asked} has no data commit of its own; this is the state of revision {revision}"
        );
    }
}

/// Converts a key or value to JSON: text, or base64 if it is not UTF-8.
fn text_or_base64(bytes: &[u8]) -> serde_json::Value {
    use base64::Engine as _;
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}
