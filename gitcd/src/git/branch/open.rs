//! How a branch begins: created, adopted from a person's commits, or opened again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use git2::{Oid, Repository, RepositoryInitOptions};

use super::super::entries::Entries;
use super::super::line::{Home, Line, Record};
use super::super::load::{Names, Parents, Reader, Snapshot};
use super::super::refs::Refs;
use super::super::tree::Tree;
use super::super::trie::Trie;
use super::super::{form, message, pack, path};
use super::{AdoptError, Branch, Config, CreateError, FlushError, OpenError, Pair, State, show};
use crate::keyspace::Placement;

/// What a branch consists of while it is in memory only.
struct Content {
    data: Tree,
    local: Tree,
    trie: Trie,
    root: Entries,
}

impl Branch {
    /// Makes a branch without keys, and the repository if there is none (bare, its `HEAD` the data reference).
    ///
    /// # Errors
    /// [`CreateError`], among others if one of the references exists.
    pub fn create(config: Config, state: &State) -> Result<Branch, CreateError> {
        let repository = match open_repository(&config.repository)? {
            Some(repository) => repository,
            None => init(&config)?,
        };
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        for reference in [&config.metadata_reference, &config.data_reference] {
            if refs.read(reference).map_err(OpenError::from)?.is_some() {
                return Err(CreateError::Exists {
                    reference: reference.clone(),
                });
            }
        }
        let content = Content {
            data: Tree::default(),
            local: Tree::default(),
            trie: Trie::default(),
            root: Entries::default(),
        };
        let zero = Pair {
            data: Oid::ZERO_SHA1,
            metadata: Oid::ZERO_SHA1,
        };
        let mut branch = Branch::new(config, repository, refs, zero, State::default(), content);
        let tree = branch.data.write(&mut branch.pack);
        let message = format!(
            "start an empty store\n\n{}",
            message::trailers(state.revision, state.revision, &[])
        );
        branch.data_commit = branch.write_commit(tree, &[], SystemTime::now(), &message);
        branch.begin(state, None)?;
        Ok(branch)
    }

    /// Derives the metadata from the tree of a data reference that has none: every file becomes a key that was created at
    /// the revision of `state` and has this version.
    ///
    /// Takes time in proportion to the size of all values, which are read once.
    ///
    /// # Errors
    /// [`AdoptError`], among others for the first file that no key is stored as.
    pub fn adopt(config: Config, state: &State, version: i64) -> Result<Branch, AdoptError> {
        let no_data = || AdoptError::NoData {
            reference: config.data_reference.clone(),
        };
        let repository = open_repository(&config.repository)?.ok_or_else(no_data)?;
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        let read = |reference| refs.read(reference).map_err(OpenError::from);
        if read(&config.metadata_reference)?.is_some() {
            return Err(AdoptError::Exists {
                reference: config.metadata_reference.clone(),
            });
        }
        let commit = read(&config.data_reference)?.ok_or_else(no_data)?;
        let (data, trie) = derive(&repository, &config, commit, state.revision, version)?;
        let content = Content {
            data,
            local: Tree::default(),
            trie,
            root: Entries::default(),
        };
        let pair = Pair {
            data: commit,
            metadata: Oid::ZERO_SHA1,
        };
        let mut branch = Branch::new(config, repository, refs, pair, State::default(), content);
        branch.begin(state, Some(commit))?;
        Ok(branch)
    }

    /// Opens a branch and completes a move of its references that a crash interrupted; `None` if there is no such branch
    /// (or no repository) yet.
    ///
    /// Reads directories and metadata, not values.
    ///
    /// # Errors
    /// [`OpenError`]: of note are [`OpenError::ForeignChange`] and [`OpenError::NoMetadata`].
    pub fn open(config: Config) -> Result<Option<Branch>, OpenError> {
        let Some(repository) = open_repository(&config.repository)? else {
            return Ok(None);
        };
        let names = names(&config);
        let file = pair_file(&repository, &config);
        let refs = Refs::open(repository.path())?;
        for name in [&names.data, &names.metadata] {
            refs.release(name)?;
        }
        let data = refs.read(&names.data)?;
        let Some(metadata) = refs.read(&names.metadata)? else {
            let (reference, metadata_reference) = (names.data, names.metadata);
            return match (data, Pair::read(&file)?) {
                (Some(_), _) => Err(OpenError::NoMetadata {
                    reference,
                    metadata_reference,
                }),
                (None, Some(pair)) => Err(OpenError::Vanished {
                    reference,
                    metadata_reference,
                    pair,
                    file,
                }),
                (None, None) => Ok(None),
            };
        };
        let parents = Reader::new(&repository, &names.metadata, metadata)?.parents()?;
        if data != Some(parents.data) {
            let recorded = Pair::read(&file)?;
            if !is_half_done(recorded, parents, data) {
                let (reference, expected) = (names.data, parents.data);
                return Err(OpenError::ForeignChange {
                    reference,
                    expected,
                    found: show(data),
                });
            }
            // Everything that it leads to is read before it moves, so that it never points to something broken.
            let snapshot = Snapshot::read(&repository, &names, metadata)?;
            refs.update(&names.data, parents.data, data)?;
            return Branch::resume(config, repository, refs, snapshot).map(Some);
        }
        let snapshot = Snapshot::read(&repository, &names, metadata)?;
        Branch::resume(config, repository, refs, snapshot).map(Some)
    }

    fn resume(
        config: Config,
        repository: Repository,
        refs: Refs,
        snapshot: Snapshot,
    ) -> Result<Branch, OpenError> {
        let Snapshot {
            metadata,
            parents,
            data,
            local,
            trie,
            state,
            root,
        } = snapshot;
        let pair = Pair {
            data: parents.data,
            metadata,
        };
        let file = pair_file(&repository, &config);
        // A damaged record does no harm while the references agree.
        if Pair::read(&file).ok().flatten() != Some(pair) {
            pair.write(&file)?;
        }
        Ok(Branch::new(
            config,
            repository,
            refs,
            pair,
            state,
            Content {
                data,
                local,
                trie,
                root,
            },
        ))
    }

    fn new(
        config: Config,
        repository: Repository,
        refs: Refs,
        head: Pair,
        state: State,
        content: Content,
    ) -> Branch {
        let Content {
            data,
            local,
            trie,
            root,
        } = content;
        let (name, email) = (
            message::identity(&config.committer_name),
            message::identity(&config.committer_email),
        );
        Branch {
            names: names(&config),
            identity: format!("{name} <{email}> "),
            config,
            repository,
            refs,
            head,
            state,
            root,
            data_commit: head.data,
            data,
            local,
            trie,
            pack: pack::Writer::default(),
            values: std::collections::HashMap::new(),
            local_values: std::collections::HashMap::new(),
            local_changed: false,
            commits: 0,
            overhead: 0,
            time: None,
            path: Vec::new(),
            scratch: Vec::new(),
            failed: false,
        }
    }

    /// Writes the first metadata commit, and the data reference unless it is there already.
    fn begin(&mut self, state: &State, data: Option<Oid>) -> Result<(), FlushError> {
        let metadata = self.write_metadata(state, None);
        let pair = Pair {
            data: self.data_commit,
            metadata,
        };
        self.pack
            .finish(&self.repository.path().join("objects/pack"))?;
        self.refs.update(&self.names.metadata, metadata, None)?;
        if data.is_none() {
            self.refs.update(&self.names.data, pair.data, None)?;
        }
        pair.write(&self.pair_file())?;
        self.head = pair;
        self.state = state.clone();
        self.overhead = 0;
        Ok(())
    }

    pub(super) fn pair_file(&self) -> PathBuf {
        pair_file(&self.repository, &self.config)
    }
}

/// Whether a crash came between the two references: the metadata is the direct successor of the recorded pair, or the first
/// one if none is recorded, and the data reference has not moved.
fn is_half_done(recorded: Option<Pair>, parents: Parents, data: Option<Oid>) -> bool {
    match recorded {
        Some(recorded) => {
            parents.previous == Some(recorded.metadata) && data == Some(recorded.data)
        }
        None => parents.previous.is_none() && data.is_none(),
    }
}

fn derive(
    repository: &Repository,
    config: &Config,
    commit: Oid,
    revision: i64,
    version: i64,
) -> Result<(Tree, Trie), AdoptError> {
    let reader = Reader::new(repository, &config.data_reference, commit)?;
    let data = reader.tree(b"", reader.commit()?.1)?;
    let record = Record {
        create_revision: revision,
        mod_revision: revision,
        version,
        lease: 0,
    };
    let mut files = Vec::with_capacity(data.len());
    data.each(|path, oid| files.push((path.to_vec(), oid)));
    let mut trie = Trie::default();
    for (file, oid) in files {
        let shown = || String::from_utf8_lossy(&file).into_owned();
        let key = path::decode(file.split(|b| *b == b'/')).map_err(|source| AdoptError::Path {
            path: shown(),
            commit,
            source,
        })?;
        let key = config.keys.absolute(&key);
        if config.keys.placement(&key) != Placement::Data {
            return Err(AdoptError::Placement {
                path: shown(),
                commit,
            });
        }
        let form = form::guess(reader.blob(&file, oid)?.data());
        let is_new = trie.put(Line {
            key: key.into(),
            record,
            form,
            home: Home::Data,
        });
        if !is_new {
            return Err(reader
                .error(&file, super::super::load::Problem::Twice)
                .into());
        }
    }
    Ok((data, trie))
}

fn names(config: &Config) -> Names {
    Names {
        data: config.data_reference.clone(),
        metadata: config.metadata_reference.clone(),
    }
}

fn pair_file(repository: &Repository, config: &Config) -> PathBuf {
    repository
        .path()
        .join("gitcd")
        .join(&config.name)
        .join("pair")
}

/// The repository at a path; `None` if nothing is there, or nothing but gitcd's own folder.
fn open_repository(path: &Path) -> Result<Option<Repository>, OpenError> {
    let below = path.join(".git");
    let path = if below.is_dir() {
        below.as_path()
    } else {
        path
    };
    if is_free(path).map_err(|source| OpenError::Io {
        path: path.into(),
        source,
    })? {
        return Ok(None);
    }
    match Repository::open_bare(path) {
        Ok(repository) => Ok(Some(repository)),
        Err(source) => Err(OpenError::NotARepository {
            path: path.into(),
            source,
        }),
    }
}

fn is_free(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Ok(entries) => {
            for entry in entries {
                if entry?.file_name() != "gitcd" {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn init(config: &Config) -> Result<Repository, CreateError> {
    let path = &config.repository;
    let mut options = RepositoryInitOptions::new();
    options
        .bare(true)
        .no_reinit(true)
        .external_template(false)
        .mkpath(true)
        .initial_head(&config.data_reference);
    let repository =
        Repository::init_opts(path, &options).map_err(|source| CreateError::Repository {
            path: path.clone(),
            source,
        })?;
    let git_dir = repository.path();
    // libgit2 leaves this to the system: after a power loss there would be commits in a folder that is no repository.
    for name in [
        "HEAD",
        "config",
        "refs/heads",
        "refs",
        "objects/pack",
        "objects",
        ".",
        "..",
    ] {
        let path = git_dir.join(name);
        File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|source| CreateError::Io { path, source })?;
    }
    Ok(repository)
}
