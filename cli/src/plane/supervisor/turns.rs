//! Servers that wait for their turn to write, and the components that wait with them.

use super::{Course, Supervisor};
use crate::plane::state::Condition;

impl Supervisor<'_> {
    /// Marks a component, and those after it, as waiting for its turn.
    pub(super) fn stand_by(&mut self, index: usize) {
        self.running[index].course = Course::StandsBy;
        self.state.components[index].condition = Condition::Waiting;
        for other in 0..self.running.len() {
            if self.waits_with(other, index) && self.running[other].launched.is_none() {
                self.state.components[other].condition = Condition::Waiting;
            }
        }
        self.save();
    }

    /// Whether a component comes after another one of the same heaven, directly or indirectly.
    fn waits_with(&self, index: usize, turn: usize) -> bool {
        let heaven = |at: usize| self.running[at].component.name.split('/').next();
        let after = &self.running[index].after;
        heaven(index) == heaven(turn) && after.iter().any(|&before| before == turn || self.waits_with(before, turn))
    }

    /// Whether its readiness shows whose turn it is; not so if it comes after such a component.
    pub(super) fn has_turns(&self, index: usize) -> bool {
        let running = &self.running[index];
        let has_turns = |&before: &usize| self.running[before].component.takes_turns && self.waits_with(index, before);
        running.component.takes_turns && !running.after.iter().any(has_turns)
    }

    /// Stops the components after one that lost its turn: they must not act on the cache of a kube-apiserver whose store
    /// has another writer now.
    pub(super) fn suspend(&mut self, turn: usize) {
        for index in 0..self.running.len() {
            if !self.waits_with(index, turn) {
                continue;
            }
            let running = &mut self.running[index];
            if let Some(launched) = running.launched.as_ref().filter(|_| !running.is_suspended) {
                launched.runner.end();
                running.is_suspended = true;
            }
        }
    }
}
