//! What the supervisor writes down, so that other commands and later runs know what runs where.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file;
use super::ports::Ports;
use super::process::Identity;
use crate::headless::Topology;
use crate::heavens::HeavenRecord;

/// The state file's content. Only the supervisor writes it, and it replaces the file as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What the control plane as a whole does.
    pub phase: Phase,
    /// The process that looks after the others; meaningful only while it is alive.
    pub supervisor: Option<Identity>,
    /// The ports of the last run.
    pub ports: Option<Ports>,
    /// What cannot change once there is data, and what is kept from run to run.
    pub settings: Settings,
    /// The components in the order in which they start.
    pub components: Vec<Component>,
    /// The heavens and merges that these belong to.
    #[serde(default)]
    pub heavens: Vec<HeavenRecord>,
    /// The ports of their servers, by `HEAVEN/SERVER`.
    #[serde(default)]
    pub allotted: BTreeMap<String, u16>,
}

/// What a whole control plane does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing was started, or everything has ended.
    #[default]
    Stopped,
    /// Components are being started in order.
    Starting,
    /// All components have been ready.
    Ready,
    /// Components are being ended in reverse order.
    Stopping,
}

/// What is kept from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What the objects are stored in.
    pub store: Store,
    /// The encoding in which kube-apiserver stores objects.
    pub storage_media_type: String,
    /// What it consists of. Those that were made before there was a choice are central.
    #[serde(default = "Form::central")]
    pub form: Form,
}

/// What a control plane consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Nothing was ever started.
    #[default]
    Undecided,
    /// One kube-apiserver on one branch.
    Central,
    /// A headless cluster.
    Headless(Topology),
    /// The heavens and merges of somebody's files.
    Manifests,
}

impl Form {
    fn central() -> Self {
        Self::Central
    }

    /// For messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Undecided => "nothing yet",
            Self::Central => "one kube-apiserver on one branch",
            Self::Headless(_) => "a headless cluster",
            Self::Manifests => "the heavens of files",
        }
    }

    /// The command that goes on with one, for messages: which files it had nobody knows any more.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Undecided | Self::Central | Self::Headless(_) => "up",
            Self::Manifests => "run --filename=…",
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: Store::Gitcd,
            // JSON is what makes the Git tree readable.
            storage_media_type: "application/json".into(),
            form: Form::Undecided,
        }
    }
}

/// What the objects are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// gitcd on a Git branch.
    Gitcd,
    /// A stock etcd, to compare with.
    Etcd,
}

impl Store {
    /// The name of the program and of the component.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gitcd => "gitcd",
            Self::Etcd => "etcd",
        }
    }
}

/// One process of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Its name, such as `kube-apiserver`.
    pub name: String,
    /// Its loopback port, if it has one.
    pub port: Option<u16>,
    /// What it does.
    pub condition: Condition,
    /// The process, while there is one.
    pub process: Option<Identity>,
    /// When the process was started, in seconds since 1970.
    pub started_unix_seconds: Option<u64>,
    /// How often it was started again after it ended unasked.
    pub restarts: u32,
}

/// What one component does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// It runs and does not yet answer that it is ready.
    Starting,
    /// It has answered that it is ready.
    Ready,
    /// Another server writes its branch, or that of what it comes after: it waits for the turn.
    Waiting,
    /// It ended unasked and is started again after a pause.
    BackingOff,
    /// It is not to run.
    Stopped,
}

impl Component {
    /// How long the process has been running at `now`.
    #[must_use]
    pub fn uptime(&self, now: SystemTime) -> Option<Duration> {
        let started = UNIX_EPOCH + Duration::from_secs(self.started_unix_seconds?);
        Some(now.duration_since(started).unwrap_or_default())
    }
}

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file is not what a supervisor writes.
    #[error("{path:?} is damaged; find the processes of this control plane, kill them, and delete the file")]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be replaced.
    #[error("cannot write {path:?}")]
    Write {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl State {
    /// Reads the state; a missing file is the state of a control plane that never ran.
    ///
    /// # Errors
    /// [`StateError::Read`], [`StateError::Damaged`].
    pub fn load(path: &Path) -> Result<Self, StateError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(StateError::Read { path: path.into(), source });
            }
        };
        serde_json::from_slice(&text).map_err(|source| StateError::Damaged { path: path.into(), source })
    }

    /// Replaces the file in one step: a reader sees the old state or the new one.
    ///
    /// # Errors
    /// [`StateError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let write = || {
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            file::replace(path, &text, 0o600)
        };
        write().map_err(|source| StateError::Write { path: path.into(), source })
    }

    /// Records that nothing runs any more.
    pub fn forget_processes(&mut self) {
        self.phase = Phase::Stopped;
        self.supervisor = None;
        for component in &mut self.components {
            component.condition = Condition::Stopped;
            component.process = None;
            component.started_unix_seconds = None;
        }
    }

    /// Whether the supervisor that wrote this is still there.
    #[must_use]
    pub fn is_supervised(&self) -> bool {
        self.supervisor.as_ref().is_some_and(Identity::is_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        assert_eq!(State::load(&path).unwrap(), State::default());
        let state = State {
            phase: Phase::Ready,
            supervisor: Identity::of(std::process::id()).unwrap(),
            components: vec![Component {
                name: "gitcd".into(),
                port: Some(7),
                condition: Condition::BackingOff,
                process: None,
                started_unix_seconds: Some(1),
                restarts: 3,
            }],
            ..State::default()
        };
        state.save(&path).unwrap();
        let loaded = State::load(&path).unwrap();
        assert_eq!(loaded, state);
        assert!(loaded.is_supervised());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        std::fs::write(&path, "{").unwrap();
        let error = State::load(&path).unwrap_err();
        assert!(error.to_string().contains("state.json"), "{error}");
    }
}
