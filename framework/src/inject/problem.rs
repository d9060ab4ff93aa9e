//! Why an injection fails.

use std::fmt;

use crate::{Failure, Retry};

/// Who can fix a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The user: the template has something else where this would be injected.
    Collision,
    /// The developer: the injection is invalid by itself.
    Invalid,
}

/// A reason why the injection fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Who can fix it.
    pub kind: ProblemKind,
    /// Path in the template: `spec.containers[app].env[KUBECONFIG]`.
    pub path: String,
    /// What was found, for readers. Values of variables and arguments are left out: they may be secrets.
    pub found: String,
    /// How to fix it, for readers.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, found, remedy, .. } = self;
        write!(formatter, "{path}: {found}; {remedy}")
    }
}

/// All problems of an injection. The text is the same for the same template, so it can go into a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectError {
    problems: Vec<Problem>,
}

impl InjectError {
    /// Returns all problems, each once, in an order that depends only on the template and the injection.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for InjectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("cannot inject into the pod template")?;
        for (index, problem) in self.problems.iter().enumerate() {
            write!(formatter, "{} {problem}", if index == 0 { ":" } else { "." })?;
        }
        Ok(())
    }
}

impl std::error::Error for InjectError {}

impl Failure for InjectError {
    /// `PodTemplateCollision` if the user can fix it, otherwise `InvalidInjection`.
    fn reason(&self) -> &'static str {
        let invalid = self.problems.iter().any(|problem| problem.kind == ProblemKind::Invalid);
        if invalid { "InvalidInjection" } else { "PodTemplateCollision" }
    }

    /// A retry helps only after a change.
    fn retry(&self) -> Retry {
        Retry::Terminal
    }
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn collision(&mut self, path: String, found: String, remedy: impl Into<String>) {
        self.add(Problem { kind: ProblemKind::Collision, path, found, remedy: remedy.into() });
    }

    pub(super) fn invalid(&mut self, path: String, found: String, remedy: impl Into<String>) {
        self.add(Problem { kind: ProblemKind::Invalid, path, found, remedy: remedy.into() });
    }

    fn add(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    pub(super) fn none_or<T>(self, value: T) -> Result<T, InjectError> {
        if self.0.is_empty() { Ok(value) } else { Err(InjectError { problems: self.0 }) }
    }
}
