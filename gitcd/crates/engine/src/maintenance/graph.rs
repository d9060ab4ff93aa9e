//! Git's commit-graph after a loss of power.
//!
//! Git makes each part of it durable, but not the list of the parts, nor the folder. A list that is damaged, or that names a part that is not there, is
//! complained of by every `git log`, and is an error to `git fsck`.

use std::fs;
use std::io;
use std::path::Path;

/// Removes the list of the parts if it is not what Git has written. Nothing is lost: whatever is in it is in the commits, and it is written
/// again when packs are joined.
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
            Ok(()) => tracing::info!(file = %list.display(), "removed a list that a loss of power has damaged"),
            Err(error) => tracing::warn!(file = %list.display(), %error, "cannot remove a damaged list"),
        }
    }
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
