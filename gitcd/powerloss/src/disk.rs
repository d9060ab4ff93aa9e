//! One disk: mounted, frozen in the middle of a call, and cut off.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::log::Inode;
use crate::mount::Mount;
use crate::tree::{Kind, ROOT, Tree};
use crate::{Order, Tally};

/// When a disk stops to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    near: String,
    after: u64,
}

impl Moment {
    /// At the `count`th call from now that changes something or makes it durable; 1 is the next.
    pub fn after(count: u64) -> Self {
        Self { near: String::new(), after: count.max(1) }
    }

    /// Counts only calls on paths with this text in them.
    #[must_use]
    pub fn near(mut self, text: &str) -> Self {
        text.clone_into(&mut self.near);
        self
    }
}

/// A disk that programs can use through a [`Mount`]. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(pub(crate) Arc<Shared>);

#[derive(Default)]
pub(crate) enum Phase {
    #[default]
    Running,
    /// It answers nothing more; the call at which it stopped.
    Frozen(String),
    /// Nobody is left who waits for an answer; whatever comes is refused.
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
    /// Calls that get their answer when the disk is released: an error that nobody lives to see.
    pub(crate) held: Vec<Box<dyn FnOnce() + Send>>,
}

/// What is to be done with a call.
pub(crate) enum Verdict {
    Do,
    /// Do it, and freeze.
    DoAndFreeze,
    /// Freeze before it is done.
    Freeze,
    /// Say that it was done.
    Lie,
}

impl Disk {
    /// An empty one.
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

    /// Lets programs use it at this folder, until the mount is dropped.
    ///
    /// # Errors
    /// Of the system; [`crate::why_not`] says whether it can be done here at all.
    pub fn mount(&self, at: &Path) -> io::Result<Mount> {
        self.0.state.lock().phase = Phase::Running;
        Mount::new(self, at)
    }

    /// Lets it freeze at this moment, instead of at one that was set before.
    pub fn arm(&self, moment: Moment) {
        self.0.state.lock().moment = Some(moment);
    }

    /// Lets it go on, unless it is frozen already, which is the answer.
    pub fn disarm(&self) -> bool {
        let mut state = self.0.state.lock();
        state.moment = None;
        matches!(state.phase, Phase::Frozen(_))
    }

    /// Whether it does not answer.
    pub fn is_frozen(&self) -> bool {
        matches!(self.0.state.lock().phase, Phase::Frozen(_))
    }

    /// Freezes it now, unless it is; tells at which call it was.
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

    /// Waits until it is frozen; false if it is not in time.
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

    /// Ends all calls that wait, with an error. Whoever made them has to be killed first: it would see what nobody sees whose machine has no power.
    pub fn release(&self) {
        let held = {
            let mut state = self.0.state.lock();
            state.phase = Phase::Released;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|answer| answer());
    }

    /// The power fails and comes back after `off`: what was not durable is there or not, by `seed`. All files are older by `off` then.
    ///
    /// The same state and the same seed have the same outcome. Must not be called while it is mounted.
    pub fn cut(&self, seed: u64, off: Duration) -> Tally {
        self.0.state.lock().tree.cut(seed, off)
    }

    /// Makes everything durable, as an orderly end of the machine does.
    pub fn settle(&self) {
        self.0.state.lock().tree.settle();
    }

    /// From now on an fsync of a path with this text in it does nothing and reports success, as some disks do.
    pub fn lie_about(&self, text: &str) {
        self.0.state.lock().lies = Some(text.to_owned());
    }

    /// How many calls have changed something or made it durable.
    pub fn changes(&self) -> u64 {
        self.0.state.lock().changes
    }

    /// Writes everything into a folder of this machine, to look at.
    ///
    /// # Errors
    /// Of the system.
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
    /// Whether a call that changes something is to be done.
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
            // What was asked of the disk last may have reached it; that it is durable nobody was told.
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
