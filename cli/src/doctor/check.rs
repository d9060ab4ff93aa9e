//! Checks and their results.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// The results of all checks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Diagnosis {
    /// The state folder.
    pub(super) dir: PathBuf,
    /// The worst status of a check.
    pub(super) status: Status,
    /// The number of checks that fail.
    pub(super) failures: usize,
    /// The number of warnings.
    pub(super) warnings: usize,
    pub(super) checks: Vec<Check>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) area: Area,
    /// The name of the check, for programs.
    pub(super) name: &'static str,
    /// What it is about, such as a component, if there are several.
    pub(super) object: Option<String>,
    pub(super) status: Status,
    /// What was measured, with its unit.
    pub(super) detail: String,
    /// What to do.
    pub(super) remedy: Option<String>,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Area {
    Machine,
    Folder,
    Cluster,
}

/// The status of a check, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    /// It could not be checked, or does not apply.
    Skipped,
    Ok,
    Warning,
    Failure,
}

impl Diagnosis {
    pub(super) fn of(dir: &Path, checks: Vec<Check>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Self {
            dir: dir.to_owned(),
            status: checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok).max(Status::Ok),
            failures: count(Status::Failure),
            warnings: count(Status::Warning),
            checks,
        }
    }
}

impl Check {
    fn new(area: Area, name: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Self { area, name, object: None, status, detail: detail.into(), remedy: None }
    }

    pub(super) fn ok(area: Area, name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(area, name, Status::Ok, detail)
    }

    pub(super) fn skipped(area: Area, name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(area, name, Status::Skipped, detail)
    }

    pub(super) fn warning(
        area: Area,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(area, name, Status::Warning, detail) }
    }

    pub(super) fn failure(
        area: Area,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(area, name, Status::Failure, detail) }
    }

    /// Names what it is about.
    pub(super) fn about(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }
}

/// Formats a number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= 10 * 1024 * MIB { format!("{} GiB", bytes / (1024 * MIB)) } else { format!("{} MiB", bytes / MIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_is_as_bad_as_its_worst_check() {
        let skipped = Check::skipped(Area::Machine, "a", "x");
        let checks = vec![skipped.clone(), Check::ok(Area::Machine, "b", "y")];
        assert_eq!(Diagnosis::of(Path::new("/"), checks.clone()).status, Status::Ok);
        assert_eq!(Diagnosis::of(Path::new("/"), vec![skipped]).status, Status::Ok);
        let warned = [checks, vec![Check::warning(Area::Folder, "c", "z", "r").about("it")]].concat();
        let diagnosis = Diagnosis::of(Path::new("/"), warned);
        assert_eq!((diagnosis.status, diagnosis.failures, diagnosis.warnings), (Status::Warning, 0, 1));
        let json = serde_json::to_value(&diagnosis.checks[2]).unwrap();
        let expected = serde_json::json!({
            "area": "folder", "name": "c", "object": "it", "status": "warning", "detail": "z", "remedy": "r",
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!([bytes(5 << 20), bytes(875 << 20), bytes(65 << 30)], ["5 MiB", "875 MiB", "65 GiB"]);
    }
}
