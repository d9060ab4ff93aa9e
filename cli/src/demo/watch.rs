//! Records when branches move, by polling their references: the times in commits are in whole seconds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::heavens::HeavenRecord;

/// Cheap: a reference is a file of 41 bytes.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A branch moved to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// Index of the heaven.
    pub(super) heaven: usize,
    /// The previous commit, if there was one.
    pub(super) from: Option<String>,
    pub(super) to: String,
    pub(super) at: Instant,
}

/// Branches that are being polled.
pub(super) struct Branches {
    moves: Arc<Mutex<Vec<Move>>>,
    is_over: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

impl Branches {
    /// Starts to poll the branches of heavens.
    pub(super) fn watch(heavens: &[HeavenRecord]) -> Self {
        let (moves, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let places: Vec<_> = heavens.iter().map(|heaven| (heaven.repository.clone(), heaven.branch.clone())).collect();
        let looking = std::thread::spawn({
            let (moves, is_over) = (moves.clone(), is_over.clone());
            move || look(&places, &moves, &is_over)
        });
        Self { moves, is_over, looking: Some(looking) }
    }

    /// Returns when no branch has moved for `quiet`, at the latest after `patience`.
    pub(super) fn until_settled(&self, quiet: Duration, patience: Duration) {
        let (since, mut count, mut last) = (Instant::now(), self.count(), Instant::now());
        while last.elapsed() < quiet && since.elapsed() < patience {
            std::thread::sleep(LOOK_EVERY * 10);
            let now = self.count();
            if now != count {
                (count, last) = (now, Instant::now());
            }
        }
    }

    fn count(&self) -> usize {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Stops polling and returns all moves in order.
    pub(super) fn end(mut self) -> Vec<Move> {
        self.stop();
        std::mem::take(&mut self.moves.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            let _looked = looking.join();
        }
    }
}

impl Drop for Branches {
    fn drop(&mut self) {
        self.stop();
    }
}

fn look(places: &[(PathBuf, String)], moves: &Mutex<Vec<Move>>, is_over: &AtomicBool) {
    let mut known: Vec<Option<String>> = vec![None; places.len()];
    while !is_over.load(Ordering::Relaxed) {
        for (heaven, (repository, branch)) in places.iter().enumerate() {
            let Some(to) = read(repository, branch) else { continue };
            if known[heaven].as_ref() != Some(&to) {
                let from = known[heaven].replace(to.clone());
                let step = Move { heaven, from, to, at: Instant::now() };
                moves.lock().unwrap_or_else(PoisonError::into_inner).push(step);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reads a loose reference; `None` for a packed one, which becomes loose when it moves again.
fn read(repository: &Path, branch: &str) -> Option<String> {
    let text = std::fs::read_to_string(repository.join(branch)).ok()?;
    let id = text.trim();
    (id.len() >= 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}
