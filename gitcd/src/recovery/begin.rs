//! A new branch.

use std::sync::Arc;

use super::{OpenError, StateLock, first_snapshot, git_dir, set_aside, start_journal, state_folder};
use crate::config::{Branches, DEFAULT_NAME};
use crate::durable;
use crate::git::branch::{self, Branch, Config, State};
use crate::git::refs::Refs;
use crate::snapshot::{Incarnation, hex};
use crate::store::revision::Revision;

/// How a branch begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The clock of the new branch.
    pub revision: Revision,
    /// The version that adopted keys have.
    pub version: i64,
    /// Make it anew even if it exists: the history in Git stays, revisions start again.
    pub force: bool,
}

/// What [`init`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    /// There was nothing.
    Created,
    /// There was history without metadata; its files are keys now.
    Adopted,
    /// It was there already; nothing was changed.
    Present,
}

/// Makes a branch, unless it is there.
///
/// # Errors
/// [`OpenError`].
pub fn init(config: &Config, beginning: Beginning) -> Result<Initialized, OpenError> {
    // A file is told as what it is; what else stands in the way is found when the branch is made.
    branch::is_absent(&config.repository).map_err(Box::new)?;
    durable::make_folder(&config.repository)?;
    let incarnation: Incarnation = rand::random();
    let state = State {
        revision: beginning.revision.get(),
        compact_revision: 0,
        incarnation: hex(&incarnation),
        leases: Vec::new(),
    };
    let is_repository = git2::Repository::open(&config.repository).is_ok();
    let (branch, done) = if is_repository {
        let lock = StateLock::take(config)?;
        let refs = Refs::open(&git_dir(&config.repository))?;
        let data = refs.read(&config.data_reference)?;
        let metadata = refs.read(&config.metadata_reference)?;
        if metadata.is_some() && !beginning.force {
            return Ok(Initialized::Present);
        }
        let adopt = if beginning.force { Branch::adopt_anew } else { Branch::adopt };
        let made = match data {
            Some(_) => (adopt(config.clone(), &state, beginning.version).map_err(Box::new)?, Initialized::Adopted),
            None => (Branch::create(config.clone(), &state).map_err(Box::new)?, Initialized::Created),
        };
        // Only now: a refusal must leave what is not in Git yet where it was. (A start after a crash in between sees
        // that the local state is of another life.)
        set_aside(lock.folder())?;
        made
    } else {
        (Branch::create(config.clone(), &state).map_err(Box::new)?, Initialized::Created)
    };
    let folder = state_folder(config);
    durable::make_folder(&folder)?;
    // A first segment, so that a journal that is missing later is known to be missing.
    start_journal(&folder.join("journal"), incarnation, 0, 1 << 12, &Arc::default())?;
    first_snapshot(incarnation, beginning.revision, branch.head().metadata).write(&folder)?;
    Ok(done)
}

/// The command line that makes this branch, for a shell.
pub(super) fn command(config: &Config) -> String {
    let name = &config.name;
    // What the flags need not say, since it follows from the name.
    let usual = Branches { repository: config.repository.clone(), ..Branches::default() }.branch(name);
    let mut flags = vec![format!("--repo={}", config.repository.display())];
    let mut add = |flag: &str, value: &str| flags.push(format!("--{flag}={name}={value}"));
    if config.data_reference != usual.data_reference || name != DEFAULT_NAME {
        add("data-reference-names", &config.data_reference);
    }
    if config.metadata_reference != usual.metadata_reference {
        add("metadata-reference-names", &config.metadata_reference);
    }
    if config.keys != usual.keys {
        let (prefix, ephemeral) = config.keys.flags();
        add("key-prefixes", &prefix);
        if !ephemeral.is_empty() {
            add("ephemeral-prefixes", &ephemeral);
        }
    }
    flags.iter().fold("gitcd init".to_owned(), |command, flag| command + " " + &quoted(flag))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+:,./@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
