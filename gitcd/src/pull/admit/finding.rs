//! What is wrong with a file.

use std::fmt;

use super::position;

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
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The field, such as `spec.ports[0].port`; empty for the whole file.
    pub field: String,
    /// What is wrong, and what to do. No value of the file is in it: that may be a secret.
    pub problem: String,
    /// Kubernetes takes the file nevertheless.
    pub is_warning: bool,
}

impl Finding {
    /// About the whole file.
    pub(super) fn whole(problem: impl Into<String>) -> Self {
        Self { line: None, field: String::new(), problem: problem.into(), is_warning: false }
    }

    /// About a place in the file.
    pub(super) fn at(text: &[u8], path: &[Step], problem: impl Into<String>) -> Self {
        let line = std::str::from_utf8(text).ok().and_then(|text| position::line(text, path));
        Self { line, field: show(path), problem: problem.into(), is_warning: false }
    }

    /// About a field, by the names on the way to it.
    pub(super) fn of(text: &[u8], path: &[&str], problem: impl Into<String>) -> Self {
        let path: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
        Self::at(text, &path, problem)
    }
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
