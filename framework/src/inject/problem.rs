//! Why nothing is injected.

use std::fmt;

use crate::{Failure, Retry};

/// Whose mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The user's template has something else where this would be injected.
    Collision,
    /// What would be injected is no good by itself.
    Invalid,
}

/// One thing that cannot be injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whose mistake it is.
    pub kind: ProblemKind,
    /// Where: `spec.containers[app].env[KUBECONFIG]`.
    pub path: String,
    /// What is there, for people. Values of variables and arguments are not repeated: they may be secrets.
    pub found: String,
    /// What to do about it, for people.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, found, remedy, .. } = self;
        write!(formatter, "{path}: {found}; {remedy}")
    }
}

/// All that stands against an injection. It says the same for the same template, so it can go into a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectError {
    problems: Vec<Problem>,
}

impl InjectError {
    /// All of them, each once, in an order that depends on the template and the injection only.
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
    /// `PodTemplateCollision` if the user can mend it, else `InvalidInjection`.
    fn reason(&self) -> &'static str {
        let invalid = self.problems.iter().any(|problem| problem.kind == ProblemKind::Invalid);
        if invalid { "InvalidInjection" } else { "PodTemplateCollision" }
    }

    /// Neither goes away by itself.
    fn retry(&self) -> Retry {
        Retry::AfterChange
    }
}

/// What was found so far.
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
