//! A disk: mounted, frozen in the middle of a call, and cut off.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::log::Inode;
use crate::tree::{Kind, ROOT, Tree};
use crate::{Order, Tally};

/// When a disk freezes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    near: String,
    after: u64,
}

impl Moment {
    /// Freezes at the `count`th call from now that changes something or makes it durable; 1 is the next.
    pub fn after(count: u64) -> Self {
        Self { near: String::new(), after: count.max(1) }
    }

    /// Counts only calls on paths that contain this text.
    #[must_use]
    pub fn near(mut self, text: &str) -> Self {
        text.clone_into(&mut self.near);
        self
    }
}

/// A disk that programs use through a [`Mount`](crate::Mount). Clones are the same disk.
#[derive(Clone)]
pub struct Disk(pub(crate) Arc<Shared>);

#[derive(Default)]
pub(crate) enum Phase {
    #[default]
    Running,
    /// The disk no longer answers; contains the call at which it froze.
    Frozen(String),
    /// No caller is left that waits for an answer; further calls are refused.
    Released,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    frozen: Condvar,
}

pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) phase: Phase,
    moment: Option<Moment>,
    lies: Option<String>,
    changes: u64,
    /// Calls that are answered when the disk is released, with an error that no program lives to see.
    pub(crate) held: Vec<Box<dyn FnOnce() + Send>>,
}

/// What to do with a call.
pub(crate) enum Verdict {
    Do,
    /// Execute it, then freeze.
    DoAndFreeze,
    /// Freeze before executing it.
    Freeze,
    /// Report success without executing it.
    Lie,
}

impl Disk {
    /// Creates an empty disk.
    pub fn new(order: Order) -> Self {
        let state = State {
            tree: Tree::new(order),
            phase: Phase::Running,
            moment: None,
            lies: None,
            changes: 0,
            held: Vec::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), frozen: Condvar::new() }))
    }

    /// Sets when the disk freezes; replaces an earlier setting.
    pub fn arm(&self, moment: Moment) {
        self.0.state.lock().moment = Some(moment);
    }

    /// Clears the setting; returns whether the disk is frozen already.
    pub fn disarm(&self) -> bool {
        let mut state = self.0.state.lock();
        state.moment = None;
        matches!(state.phase, Phase::Frozen(_))
    }

    /// Returns whether the disk is frozen.
    pub fn is_frozen(&self) -> bool {
        matches!(self.0.state.lock().phase, Phase::Frozen(_))
    }

    /// Freezes the disk now, unless it is frozen; returns the call at which it froze.
    pub fn freeze(&self) -> String {
        let mut state = self.0.state.lock();
        state.moment = None;
        if let Phase::Frozen(at) = &state.phase {
            return at.clone();
        }
        let at = "between two calls".to_owned();
        state.phase = Phase::Frozen(at.clone());
        self.0.frozen.notify_all();
        at
    }

    /// Waits until the disk is frozen; returns false on timeout.
    pub fn wait_until_frozen(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.0.state.lock();
        while !matches!(state.phase, Phase::Frozen(_)) {
            if self.0.frozen.wait_until(&mut state, deadline).timed_out() {
                return matches!(state.phase, Phase::Frozen(_));
            }
        }
        true
    }

    /// Answers all waiting calls with an error. Kill their programs first: they would see an error that a machine without power
    /// cannot report.
    pub fn release(&self) {
        let held = {
            let mut state = self.0.state.lock();
            state.phase = Phase::Released;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|answer| answer());
    }

    /// Simulates a power loss of duration `off`: changes that are not durable are kept or dropped, by `seed`. All files age by
    /// `off`.
    ///
    /// The same state and seed have the same outcome. Must not be called while the disk is mounted.
    pub fn cut(&self, seed: u64, off: Duration) -> Tally {
        self.0.state.lock().tree.cut(seed, off)
    }

    /// Makes everything durable, like an orderly shutdown.
    pub fn settle(&self) {
        self.0.state.lock().tree.settle();
    }

    /// Makes an fsync of paths that contain this text report success without effect, as some disks do.
    pub fn lie_about(&self, text: &str) {
        self.0.state.lock().lies = Some(text.to_owned());
    }

    /// Returns how many calls have changed something or made it durable.
    pub fn changes(&self) -> u64 {
        self.0.state.lock().changes
    }

    /// Writes everything to a folder of this machine, for inspection.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn export(&self, to: &Path) -> io::Result<()> {
        export(&self.0.state.lock().tree, ROOT, to)
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Disk").finish_non_exhaustive()
    }
}

fn export(tree: &Tree, inode: Inode, to: &Path) -> io::Result<()> {
    match &tree.node(inode)?.kind {
        Kind::File(file) => fs::write(to, file.now().read(0, usize::MAX >> 1)),
        Kind::Link(target) => std::os::unix::fs::symlink(target, to),
        Kind::Folder(entries) => {
            fs::create_dir_all(to)?;
            entries.iter().try_for_each(|(name, inode)| export(tree, *inode, &to.join(name)))
        }
    }
}

impl Shared {
    /// Decides what to do with a call that changes something.
    pub(crate) fn judge(&self, state: &mut State, what: &str, path: &Path, is_sync: bool) -> Verdict {
        state.changes += 1;
        let path = path.to_string_lossy();
        let is_moment = state.moment.as_mut().is_some_and(|moment| {
            if path.contains(&moment.near) {
                moment.after -= 1;
            }
            moment.after == 0
        });
        if is_moment {
            state.moment = None;
            state.phase = Phase::Frozen(format!("{what} {path}"));
            self.frozen.notify_all();
            // The last change may have reached the disk, but no program was notified that it is durable.
            return if is_sync { Verdict::Freeze } else { Verdict::DoAndFreeze };
        }
        if is_sync && state.lies.as_ref().is_some_and(|text| path.contains(text)) {
            return Verdict::Lie;
        }
        Verdict::Do
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
