//! Repair of Git's commit-graph after a loss of power.
//!
//! Git syncs each part of the graph, but neither the list of the parts nor the folder. If the list is damaged, or names a missing
//! part, every `git log` prints a warning and `git fsck` fails.

use std::fs;
use std::io;
use std::path::Path;

use gitcd_core::durable;

/// Removes the list of the parts if it is damaged. Nothing is lost: the graph only caches what is in the commits, and the next
/// repack writes it again.
pub fn mend(repository: &Path) {
    let folder = repository.join("objects/info/commit-graphs");
    let list = folder.join("commit-graph-chain");
    let is_whole = match fs::read_to_string(&list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(_) => false,
        Ok(text) => {
            let is_part = |name: &str| {
                let is_id = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_id && folder.join(format!("graph-{name}.graph")).is_file()
            };
            text.ends_with('\n') && text.lines().all(is_part)
        }
    };
    if !is_whole {
        match fs::remove_file(&list) {
            Ok(()) => tracing::info!(file = %list.display(), "removed a damaged commit-graph list"),
            Err(error) => tracing::warn!(file = %list.display(), %error, "cannot remove a damaged commit-graph list"),
        }
    }
}

/// Removes the whole commit-graph: it names commits beyond the boundary of a history that was cut.
pub(super) fn remove_all(repository: &Path) -> Result<(), durable::Error> {
    let info = repository.join("objects/info");
    for path in [info.join("commit-graph"), info.join("commit-graphs")] {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(durable::Error::of("remove", &path))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_what_is_there_stays_and_any_other_goes() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("objects/info/commit-graphs");
        let list = parts.join("commit-graph-chain");
        mend(folder.path());
        fs::create_dir_all(&parts).unwrap();
        let (one, other) = ("a".repeat(40), "b".repeat(40));
        fs::write(parts.join(format!("graph-{one}.graph")), "").unwrap();
        for (text, stays) in [
            (format!("{one}\n"), true),
            (format!("{one}\n{other}\n"), false),
            (one.clone(), false),
            (String::new(), false),
            ("\0".repeat(41), false),
        ] {
            fs::write(&list, &text).unwrap();
            mend(folder.path());
            assert_eq!(list.exists(), stays, "{text:?}");
        }
    }
}
