//! The supervisor's record for other commands and later runs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file;
use super::ports::Ports;
use super::process::Identity;
use crate::record::{HeavenRecord, Topology};

/// Content of the state file. Only the supervisor writes it, and always replaces the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The phase of the control plane.
    pub phase: Phase,
    /// The supervisor process; meaningful only while it is alive.
    pub supervisor: Option<Identity>,
    /// The ports of the last run.
    pub ports: Option<Ports>,
    /// Settings that are kept from run to run; some cannot change once there is data.
    pub settings: Settings,
    /// The components in start order.
    pub components: Vec<Component>,
    /// The heavens and merges to which they belong.
    #[serde(default)]
    pub heavens: Vec<HeavenRecord>,
    /// A digest of the manifests of files that were given for this run.
    #[serde(default)]
    pub manifests: Option<String>,
    /// The ports of their servers, by `HEAVEN/SERVER`.
    #[serde(default)]
    pub allotted: BTreeMap<String, u16>,
}

/// The phase of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No component runs.
    #[default]
    Stopped,
    /// Components are being started in order.
    Starting,
    /// All components have been ready.
    Ready,
    /// Components are being stopped in reverse order.
    Stopping,
}

/// Settings that are kept from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The store of the objects.
    pub store: Store,
    /// The encoding in which kube-apiserver stores objects.
    pub storage_media_type: String,
    /// What it consists of. State files from before this field are central.
    #[serde(default = "Form::central")]
    pub form: Form,
    /// Whether commits name the users of kube-apiserver.
    #[serde(default = "on")]
    pub audit: bool,
}

fn on() -> bool {
    true
}

/// What a control plane consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// It was never started.
    #[default]
    Undecided,
    /// One kube-apiserver on one branch.
    Central,
    /// A headless cluster.
    Headless(Topology),
    /// The heavens and merges of user files.
    Manifests,
}

impl Form {
    fn central() -> Self {
        Self::Central
    }

    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Undecided => "nothing yet",
            Self::Central => "one kube-apiserver on one branch",
            Self::Headless(_) => "a headless cluster",
            Self::Manifests => "the heavens of files",
        }
    }

    /// The command to continue, for messages; the files of a run are not recorded.
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
            // JSON makes the Git tree readable.
            storage_media_type: "application/json".into(),
            form: Form::Undecided,
            audit: on(),
        }
    }
}

/// The store of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// gitcd on a Git branch.
    Gitcd,
    /// A stock etcd, for comparison.
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
    /// Its condition.
    pub condition: Condition,
    /// The process, while there is one.
    pub process: Option<Identity>,
    /// When the process started, in seconds since 1970.
    pub started_unix_seconds: Option<u64>,
    /// How often it was restarted after it exited by itself.
    pub restarts: u32,
    /// How it exited last, if it did by itself.
    #[serde(default)]
    pub last_exit: Option<String>,
}

/// The condition of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// It runs, but has not been ready yet.
    Starting,
    /// It has been ready.
    Ready,
    /// Another server writes its branch, or that of a component before it: it waits for its turn.
    Waiting,
    /// It exited by itself and restarts after a pause.
    BackingOff,
    /// It does not run.
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
    /// The content is invalid.
    #[error("{path:?} is damaged; find the processes of this control plane, kill them, and delete the file")]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// The state file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be replaced.
    #[error("cannot write {path:?}")]
    Write {
        /// The state file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl State {
    /// Reads the state; a missing file means that the control plane never ran.
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

    /// Replaces the file atomically: a reader sees the old state or the new one.
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

    /// Whether the supervisor that wrote this still runs.
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
                last_exit: Some("exited with code 1".into()),
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
