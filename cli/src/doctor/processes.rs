//! Programs that were replaced since their process started.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use trishanku::plane::{Identity, SUPERVISOR, State};

use super::check::{Area, Check};

/// How the kernel marks the path of a program whose file was removed.
const REMOVED: &str = " (deleted)";

/// Checks the running processes of a control plane.
pub(super) fn check(state: &State, program: &str) -> Option<Check> {
    let components = state.components.iter().map(|component| (component.name.as_str(), component.process.as_ref()));
    let processes = components.chain([(SUPERVISOR, state.supervisor.as_ref())]);
    let running: Vec<(&str, &Identity)> =
        processes.filter_map(|(name, process)| Some((name, process.filter(|process| process.is_alive())?))).collect();
    let replaced = running.iter().filter_map(|(name, process)| {
        let folder = Path::new("/proc").join(process.pid.to_string());
        Some((*name, replaced(&folder.join("exe")).ok()??))
    });
    let replaced: Vec<_> = replaced.collect();
    (!running.is_empty()).then(|| of(running.len(), &replaced, program))
}

/// Returns the path of the program of a process, if another file is there now, or none.
fn replaced(exe: &Path) -> io::Result<Option<PathBuf>> {
    let path = std::fs::read_link(exe)?;
    let text = path.to_string_lossy();
    if let Some(path) = text.strip_suffix(REMOVED) {
        return Ok(Some(path.into()));
    }
    // The link leads to the file of the process, whatever its path has now.
    let (used, found) = (exe.metadata()?, path.metadata()?);
    Ok(((used.dev(), used.ino()) != (found.dev(), found.ino())).then_some(path))
}

fn of(count: usize, replaced: &[(&str, PathBuf)], program: &str) -> Check {
    const NAME: &str = "replaced-programs";
    if replaced.is_empty() {
        return Check::ok(Area::Cluster, NAME, format!("{count} processes run the programs that are installed"));
    }
    let names: Vec<String> = replaced.iter().map(|(name, path)| format!("{name} ({})", path.display())).collect();
    let detail = format!("another version, or none, was installed since the start of {}", names.join(", "));
    let remedy = format!("`{program} down`, then start it again");
    Check::warning(Area::Cluster, NAME, detail, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [program, other, exe] = ["program", "other", "exe"].map(|name| folder.path().join(name));
        std::fs::write(&program, "old").unwrap();
        std::os::unix::fs::symlink(&program, &exe).unwrap();
        assert_eq!(replaced(&exe).unwrap(), None);
        std::fs::remove_file(&exe).unwrap();
        std::os::unix::fs::symlink(format!("{}{REMOVED}", other.display()), &exe).unwrap();
        assert_eq!(replaced(&exe).unwrap(), Some(other.clone()));
        assert_eq!(replaced(Path::new("/proc/self/exe")).unwrap(), None);

        let good = of(3, &[], "trishanku");
        assert_eq!(
            (good.status, good.detail.as_str()),
            (Status::Ok, "3 processes run the programs that are installed")
        );
        let warned = of(3, &[("desk/gitcd", other)], "trishanku --name b");
        assert!(warned.status == Status::Warning && warned.detail.contains("desk/gitcd (/"), "{warned:?}");
        assert!(warned.remedy.unwrap().starts_with("`trishanku --name b down`"));
    }
}
