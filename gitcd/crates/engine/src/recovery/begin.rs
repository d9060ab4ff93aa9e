//! A new branch.

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

/// How a branch begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The clock of the new branch.
    pub revision: Revision,
    /// The version that adopted keys have.
    pub version: i64,
    /// How many commits of existing history to look at, from the newest on; `None`: all. What is older came with the first of them.
    pub depth: Option<NonZero<usize>>,
    /// Make it anew even if it exists: the history in Git stays, revisions start again.
    pub force: bool,
}

/// What [`init`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    /// There was nothing.
    Created,
    /// There was history without metadata; its files are keys now.
    Adopted {
        /// The number of keys,
        keys: usize,
        /// and of commits that tell when they changed.
        commits: usize,
        /// The revision of the last one.
        revision: i64,
    },
    /// The Go implementation of gitcd had written it.
    Converted {
        /// The number of keys.
        keys: usize,
        /// Where its store was.
        revision: i64,
        /// So many of its files have other names now.
        renamed: usize,
        /// So many were left out, because they are ephemeral here.
        left_out: usize,
    },
    /// It was there already; nothing was changed.
    Present,
}

/// Makes a branch, unless it is there.
///
/// # Errors
/// [`OpenError`].
pub fn init(config: &Config, beginning: Beginning) -> Result<Initialized, OpenError> {
    init_with(config, beginning, &mut |_| ())
}

/// The same, and tells how far it has come.
///
/// # Errors
/// [`OpenError`].
pub fn init_with(
    config: &Config,
    beginning: Beginning,
    progress: &mut dyn FnMut(Progress),
) -> Result<Initialized, OpenError> {
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
    let create = || Branch::create(config.clone(), &state).map_err(Box::new);
    let (branch, done) = if let Ok(repository) = git2::Repository::open(&config.repository) {
        let lock = StateLock::take(config)?;
        let refs = Refs::open(&git_dir(&config.repository))?;
        // Of one that was killed.
        for name in [&config.data_reference, &config.metadata_reference] {
            refs.release(name)?;
            refs.settle(name)?;
        }
        let data = refs.read(&config.data_reference)?;
        let metadata = refs.read(&config.metadata_reference)?;
        let is_of_go = metadata.is_some_and(|metadata| go::is_metadata(&repository, metadata).unwrap_or(false));
        let made = match (metadata, data) {
            (Some(_), _) if is_of_go && !beginning.force => convert(config, &incarnation, progress)?,
            // The metadata comes first: one that was killed in between is completed.
            (Some(_), None) if !beginning.force => {
                let opened = Branch::open(config.clone()).map_err(Box::new)?;
                return Ok(opened.map_or(Initialized::Present, |_| Initialized::Created));
            }
            (Some(_), Some(_)) if !beginning.force => return Ok(Initialized::Present),
            (_, Some(_)) => adopt(config, beginning, state, progress)?,
            (_, None) => (create()?, Initialized::Created),
        };
        // Only now: a refusal must leave what is not in Git yet where it was. (A start after a crash in between sees
        // that the local state is of another life.)
        set_aside(lock.folder())?;
        made
    } else {
        (create()?, Initialized::Created)
    };
    let folder = state_folder(config);
    durable::make_folder(&folder)?;
    // A first segment, so that a journal that is missing later is known to be missing.
    start_journal(&folder.join("journal"), incarnation, 0, 1 << 12, &Arc::default())?;
    let state = branch.state();
    let mut snapshot = first_snapshot(incarnation, Revision::new(state.revision), branch.head().metadata);
    snapshot.compacted = Revision::new(state.compact_revision);
    snapshot.leases.clone_from(&state.leases);
    snapshot.write(&folder)?;
    Ok(done)
}

/// Makes a branch of data that is there.
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
    // What cannot be read is reported by what reads all of it.
    let is_kubernetes = is_kubernetes.unwrap_or(false);
    let schemas = Schemas::builtin();
    let admission = Admission { schemas: &schemas, is_kubernetes, completes: false };
    let check = |relative: &[u8], value: &[u8]| {
        // As a gitcd lays it out in Git.
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

/// Makes a branch of what the Go implementation has written.
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

/// The command line that makes this branch, for a shell.
pub(super) fn command(config: &Config) -> String {
    let name = &config.name;
    // What the flags need not say, since it follows from the name.
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
