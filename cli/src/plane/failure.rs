//! Reports of components that failed, with hints.

use std::path::PathBuf;

use serde::Serialize;

use super::components::Component;
use super::log;

/// Log lines that a message shows.
const SHOWN_LINES: usize = 8;
/// Log lines that are searched for the reason: after an unknown flag, some programs print all their flags.
const SEARCHED_LINES: usize = 300;

/// A component that failed, with the end of its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The component.
    pub component: String,
    /// The reason.
    pub cause: String,
    /// Its log.
    pub log: PathBuf,
    /// The log's last lines.
    pub tail: Vec<String>,
    /// What to do, if the program rejects its flags or configuration.
    pub remedy: Option<String>,
}

impl Failure {
    pub(super) fn of(component: &Component, cause: String) -> Self {
        Self::read(&component.name, cause, component.log.clone())
    }

    /// Reads the end of the log of a component that failed for this reason.
    pub(crate) fn read(component: &str, cause: String, log: PathBuf) -> Self {
        let said = log::tail(&log, SEARCHED_LINES);
        let tail = said[said.len().saturating_sub(SHOWN_LINES)..].to_vec();
        let remedy = component.contains('/').then(|| remedy(component, &said)).flatten();
        Self { component: component.to_owned(), cause, log, tail, remedy }
    }
}

/// Describes the cause of the last of so many exits.
pub(crate) fn repeated(cause: &str, restarts: u32) -> String {
    match cause.strip_prefix("exited with ") {
        Some(code) if restarts > 1 => format!("keeps exiting with {code} ({restarts} restarts)"),
        _ if restarts == 1 => format!("{cause} (1 restart)"),
        _ => format!("{cause} ({restarts} restarts)"),
    }
}

/// Returns a hint for a program that rejects its flags or configuration, which a restart cannot fix.
fn remedy(component: &str, said: &[String]) -> Option<String> {
    // The messages of Go's two flag libraries, and of clap.
    let says = ["unknown flag: ", "flag provided but not defined: ", "unexpected argument '"];
    let unknown = said.iter().rev().find_map(|line| {
        let rest = says.iter().find_map(|say| line.split_once(say))?.1;
        let flag = rest.split(|letter: char| letter.is_whitespace() || "'=,".contains(letter)).next()?;
        flag.starts_with('-').then_some(flag)
    });
    if let Some(flag) = unknown {
        return Some(format!(
            "This version does not know {flag}: leave it out with --drop-flag={component}={flag}, and give another one with \
             --add-flag={component}=--FLAG=VALUE if need be"
        ));
    }
    let version = said.iter().rev().find_map(|line| {
        let (_, rest) = line.split_once("is registered for version ")?;
        rest.trim_start_matches(['\\', '"']).split(['\\', '"']).next()
    });
    version.map(|version| {
        format!("This version does not know the configuration {version}: give it another one, such as by its ConfigMap in one more file")
    })
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let log = self.log.display();
        write!(f, "{} {}; its log {log}", self.component, self.cause)?;
        if self.tail.is_empty() {
            return write!(f, " is empty");
        }
        write!(f, " ends with")?;
        self.tail.iter().try_for_each(|line| write!(f, "\n  | {line}"))?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "\n{remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_exits_are_counted() {
        for (cause, restarts, expected) in [
            ("exited with code 3", 1, "exited with code 3 (1 restart)"),
            ("exited with code 3", 2, "keeps exiting with code 3 (2 restarts)"),
            ("was killed by signal 9", 12, "was killed by signal 9 (12 restarts)"),
        ] {
            assert_eq!(repeated(cause, restarts), expected);
        }
    }

    #[test]
    fn what_a_program_does_not_understand_has_a_remedy() {
        let of = |line: &str| remedy("a/app", &["Usage:".to_owned(), line.to_owned(), "  -v int".to_owned()]);
        for (line, expected) in [
            ("Error: unknown flag: --pod-eviction-timeout", "--drop-flag=a/app=--pod-eviction-timeout"),
            ("flag provided but not defined: -old", "--drop-flag=a/app=-old"),
            ("error: unexpected argument '--old' found", "--drop-flag=a/app=--old"),
            (r#"err="no kind \"C\" is registered for version \"x/v1beta3\" in scheme""#, "configuration x/v1beta3:"),
        ] {
            assert!(of(line).unwrap().contains(expected), "{line}");
        }
        assert_eq!(of("connection refused"), None);
    }
}
