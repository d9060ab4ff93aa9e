//! Findings: what is wrong with a file.

use std::fmt;

use super::position;
use crate::secrecy::Exposure;

/// A step on the path to a value in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field.
    Field(String),
    /// An item of a list, counted from 0.
    Item(usize),
}

/// A problem of a file, with its line and field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, from 1, once [`Self::located`] has determined it.
    pub line: Option<usize>,
    /// The field, such as `spec.ports[0].port`; empty for the whole file.
    pub field: String,
    /// What is wrong, and what to do. Contains no value of the file, which may be a secret.
    pub problem: String,
    /// Whether this is only a warning: Kubernetes accepts the file.
    pub is_warning: bool,
    /// The path, unless the finding is about the whole file.
    pub(super) at: Option<Vec<Step>>,
}

impl Finding {
    /// Creates a finding about the whole file.
    pub fn whole(problem: impl Into<String>) -> Self {
        Self { line: None, field: String::new(), problem: problem.into(), is_warning: false, at: None }
    }

    /// Creates a finding about a value in the file.
    pub(super) fn at(path: &[Step], problem: impl Into<String>) -> Self {
        Self { field: show(path), at: Some(path.to_vec()), ..Self::whole(problem) }
    }

    /// Creates a finding about a field, given the names on the path to it.
    pub(super) fn of(path: &[&str], problem: impl Into<String>) -> Self {
        let path: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
        Self::at(&path, problem)
    }

    /// Creates a finding about a field as Kubernetes formats it (`field.Path`), such as `spec.ports[0].port` or `data[a.b]`.
    pub fn of_field(field: &str, problem: impl Into<String>) -> Self {
        let mut path = Vec::new();
        for part in field.split_inclusive(']').flat_map(|part| match part.split_once('[') {
            // Within brackets, dots are part of a name.
            Some((before, inside)) => [before, inside],
            None => [part, ""],
        }) {
            match part.strip_suffix(']') {
                Some(inside) => path.push(match inside.parse() {
                    Ok(at) => Step::Item(at),
                    Err(_) => Step::Field(inside.trim_matches('"').to_owned()),
                }),
                None => path
                    .extend(part.split('.').filter(|name| !name.is_empty()).map(|name| Step::Field(name.to_owned()))),
            }
        }
        Self::at(&path, problem)
    }

    /// Returns the finding with its line in the file's original content. Takes one pass over the file.
    #[must_use]
    pub fn located(self, file: &[u8]) -> Self {
        let text = std::str::from_utf8(file).ok();
        let line = text.zip(self.at.as_deref()).and_then(|(text, at)| position::line(text, at));
        Self { line: self.line.or(line), ..self }
    }
}

/// Limit of findings in the reason for a rejection.
const MOST: usize = 3;

/// Formats why a file was rejected, for its author: with lines, and with the names of fields as far as they may be printed.
pub fn reason(findings: &[Finding], file: &[u8], exposure: Exposure) -> String {
    let shown = findings.iter().take(MOST).map(|finding| {
        let finding = finding.clone().located(file);
        let field = exposure.path(&finding.field).to_owned();
        Finding { field, ..finding }.to_string()
    });
    shown.collect::<Vec<_>>().join("; ")
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        if self.is_warning {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// Formats a path, such as `spec.ports[0].port`; keys with dots are in brackets.
fn show(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if name.contains(['.', ' ', '[']) => text.extend(["[", name, "]"]),
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Item(at) => text.extend(["[", &at.to_string(), "]"]),
        }
    }
    text
}
