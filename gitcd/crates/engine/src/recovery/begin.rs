//! Creation of a branch.

use std::num::NonZero;
use std::sync::Arc;

use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_merge::admit::{self, Admission};
use gitcd_merge::form;
use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_repo::branch::DEFAULT_NAME;
use gitcd_repo::branch::{self, Branch, Config, Converted, Progress, State, Takeover};
use gitcd_repo::git_dir;
use gitcd_repo::go;
use gitcd_repo::object;
use gitcd_repo::refs::Refs;

use super::{OpenError, StateLock, first_snapshot, set_aside, start_journal, state_folder};

/// Options for a new branch.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The first revision of the new branch.
    pub revision: Revision,
    /// The version of adopted keys.
    pub version: i64,
    /// How many existing commits to read, from the newest on; `None`: all. Keys that are older get the revision of the oldest
    /// commit read.
    pub depth: Option<NonZero<usize>>,
    /// Create the branch even if it exists: the history in Git stays, revisions start again.
    pub force: bool,
}

/// An empty history is read whole, revisions start as in etcd, and an existing branch is an error.
impl Default for Beginning {
    fn default() -> Self {
        Self { revision: Revision::INITIAL, version: 1, depth: None, force: false }
    }
}

/// What [`init`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    /// Created a branch that did not exist.
    Created,
    /// Adopted history without metadata; its files are keys now.
    Adopted {
        /// Number of keys.
        keys: usize,
        /// Number of commits that date their changes.
        commits: usize,
        /// The last revision.
        revision: i64,
    },
    /// Converted a branch of the Go implementation of gitcd.
    Converted {
        /// Number of keys.
        keys: usize,
        /// The last revision of its store.
        revision: i64,
        /// Number of renamed files.
        renamed: usize,
        /// Number of keys left out because they are ephemeral here.
        left_out: usize,
    },
    /// The branch existed; nothing was changed.
    Present,
}

/// Creates a branch, unless it exists.
///
/// # Errors
/// [`OpenError`].
pub fn init(config: &Config, beginning: Beginning) -> Result<Initialized, OpenError> {
    init_with(config, beginning, &mut |_| ())
}

/// Does the same as [`init`], and reports its progress.
///
/// # Errors
/// [`OpenError`].
pub fn init_with(
    config: &Config,
    beginning: Beginning,
    progress: &mut dyn FnMut(Progress),
) -> Result<Initialized, OpenError> {
    // Reports a file in the way as such; other obstacles are found when the branch is created.
    branch::is_absent(&config.repository).map_err(Box::new)?;
    durable::make_folder(&config.repository)?;
    let incarnation: Incarnation = rand::random();
    let state = State {
        revision: beginning.revision.get(),
        compact_revision: 0,
        incarnation: hex(&incarnation),
        leases: Vec::new(),
    };
    let create = || Branch::create(config.clone(), &state).map_err(Box::new);
    let (branch, done) = if let Ok(repository) = git2::Repository::open(&config.repository) {
        let lock = StateLock::take(config)?;
        let refs = Refs::open(&git_dir(&config.repository))?;
        // Left by a killed process.
        for name in [&config.data_reference, &config.metadata_reference] {
            refs.release(name)?;
            refs.settle(name)?;
        }
        let data = refs.read(&config.data_reference)?;
        let metadata = refs.read(&config.metadata_reference)?;
        let is_of_go = metadata.is_some_and(|metadata| go::is_metadata(&repository, metadata).unwrap_or(false));
        let made = match (metadata, data) {
            (Some(_), _) if is_of_go && !beginning.force => convert(config, &incarnation, progress)?,
            // The metadata reference is created first: complete a creation that was interrupted in between.
            (Some(_), None) if !beginning.force => {
                let opened = Branch::open(config.clone()).map_err(Box::new)?;
                return Ok(opened.map_or(Initialized::Present, |_| Initialized::Created));
            }
            (Some(_), Some(_)) if !beginning.force => return Ok(Initialized::Present),
            (_, Some(_)) => adopt(config, beginning, state, progress)?,
            (_, None) => (create()?, Initialized::Created),
        };
        // Only now: after a refusal, uncommitted state must stay in place. (If a crash prevents this, the next start finds local
        // state of another incarnation.)
        set_aside(lock.folder())?;
        made
    } else {
        (create()?, Initialized::Created)
    };
    let folder = state_folder(config);
    durable::make_folder(&folder)?;
    // Create a first segment, so that a missing journal is detected later.
    start_journal(&folder.join("journal"), incarnation, 0, 1 << 12, &Arc::default())?;
    let state = branch.state();
    let mut snapshot = first_snapshot(incarnation, Revision::new(state.revision), branch.head().metadata);
    snapshot.compacted = Revision::new(state.compact_revision);
    snapshot.leases.clone_from(&state.leases);
    snapshot.write(&folder)?;
    Ok(done)
}

/// Creates a branch from existing data.
fn adopt(
    config: &Config,
    beginning: Beginning,
    state: State,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Branch, Initialized), OpenError> {
    let is_kubernetes = git2::Repository::open(&config.repository).and_then(|repository| {
        let tree = repository.find_reference(&config.data_reference)?.peel_to_tree()?.id();
        object::holds_kubernetes(&repository, tree)
    });
    // Errors are reported by the code that reads everything.
    let is_kubernetes = is_kubernetes.unwrap_or(false);
    let schemas = Schemas::builtin();
    let admission = Admission { schemas: &schemas, is_kubernetes, completes: false };
    let check = |relative: &[u8], value: &[u8]| {
        // As gitcd formats it in Git.
        let in_words = |findings: Vec<_>| {
            admit::reason(
                &findings,
                &form::encode(value).1,
                SecretKinds::default().of_change(relative, [Some(value), None]),
            )
        };
        admission.admit(relative, value, None, || None).map(drop).map_err(in_words)
    };
    let Beginning { version, depth, force: anew, .. } = beginning;
    let takeover = Takeover { state, version, depth, anew, check: &check, progress };
    let (branch, commits) = Branch::adopt(config.clone(), takeover).map_err(Box::new)?;
    let done = Initialized::Adopted { keys: branch.keys(), commits, revision: branch.state().revision };
    Ok((branch, done))
}

/// Creates a branch from what the Go implementation wrote.
fn convert(
    config: &Config,
    incarnation: &Incarnation,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Branch, Initialized), OpenError> {
    let converted = Branch::convert(config.clone(), hex(incarnation), progress).map_err(Box::new)?;
    let Converted { branch, renamed, left_out } = converted;
    let done = Initialized::Converted { keys: branch.keys(), revision: branch.state().revision, renamed, left_out };
    Ok((branch, done))
}

/// Returns the shell command that creates this branch.
pub(super) fn command(config: &Config) -> String {
    let name = &config.name;
    // The defaults for this name, which need no flags.
    let usual = Config::named(config.repository.clone(), name);
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
