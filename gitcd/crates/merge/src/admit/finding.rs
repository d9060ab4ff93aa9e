//! What is wrong with a file.

use std::fmt;

use super::position;
use crate::secrecy::Exposure;

/// A step from an object to a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field.
    Field(String),
    /// An item of a list, counted from 0.
    Item(usize),
}

/// Something that is wrong with a file, with the line and the field that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line, counted from 1, once [`Self::located`] has looked for it.
    pub line: Option<usize>,
    /// The field, such as `spec.ports[0].port`; empty for the whole file.
    pub field: String,
    /// What is wrong, and what to do. No value of the file is in it: that may be a secret.
    pub problem: String,
    /// Whether this is only a warning: Kubernetes accepts the file.
    pub is_warning: bool,
    /// Where it is, unless it is about the whole file.
    pub(super) at: Option<Vec<Step>>,
}

impl Finding {
    /// About the whole file.
    pub fn whole(problem: impl Into<String>) -> Self {
        Self { line: None, field: String::new(), problem: problem.into(), is_warning: false, at: None }
    }

    /// About a place in the file.
    pub(super) fn at(path: &[Step], problem: impl Into<String>) -> Self {
        Self { field: show(path), at: Some(path.to_vec()), ..Self::whole(problem) }
    }

    /// About a field, by the names on the way to it.
    pub(super) fn of(path: &[&str], problem: impl Into<String>) -> Self {
        let path: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
        Self::at(&path, problem)
    }

    /// About a field as Kubernetes writes it (`field.Path`), such as `spec.ports[0].port` or `data[a.b]`.
    pub fn of_field(field: &str, problem: impl Into<String>) -> Self {
        let mut path = Vec::new();
        for part in field.split_inclusive(']').flat_map(|part| match part.split_once('[') {
            // Dots in brackets are a part of a name.
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

    /// The same with its line in the file as its author wrote it. Costs a pass over the file.
    #[must_use]
    pub fn located(self, file: &[u8]) -> Self {
        let text = std::str::from_utf8(file).ok();
        let line = text.zip(self.at.as_deref()).and_then(|(text, at)| position::line(text, at));
        Self { line: self.line.or(line), ..self }
    }
}

/// Findings in the reason for a refusal; the rest is left out.
const MOST: usize = 3;

/// Why a file was refused, in words for its author: with lines, and with as much of the names of fields as may be printed.
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

/// `spec.ports[0].port`; the names of keys with dots are in brackets.
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
