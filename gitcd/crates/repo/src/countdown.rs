//! Prebuilt commits, written and sent at once, along which a reference moves step by step.
//!
//! Each target is the parent of the previous one: a repository that has the first has all others. So a move sends no objects,
//! and the commits that it leaves are pruned by the next `git gc`.

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use git2::Oid;

use super::message;
use super::pack::{self, Kind};
use super::pack_file::WriteError;

/// The metadata and content of the commits.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// Name of author and committer.
    pub name: &'a str,
    /// Their email address.
    pub email: &'a str,
    /// A file in each commit, name and content, so that its tree is not empty.
    pub file: (&'a str, &'a str),
}

/// Writes `count` commits into a pack of the repository at `git_dir`, durably. `message` gets the number of commits that follow.
/// Returns the commits in their order of use.
///
/// # Errors
/// [`WriteError`]; nothing is visible.
pub fn write(
    git_dir: &Path,
    form: Form<'_>,
    count: usize,
    message: impl Fn(usize) -> String,
) -> Result<Vec<Oid>, WriteError> {
    let mut pack = pack::Writer::default();
    let mut add = |kind: Kind, content: &[u8]| {
        let oid = pack::id(kind, content);
        pack.whole(kind, oid, content);
        oid
    };
    let blob = add(Kind::Blob, form.file.1.as_bytes());
    let tree = add(Kind::Tree, &[b"100644 ", form.file.0.as_bytes(), b"\0", blob.as_bytes()].concat());
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let identity = format!("{} <{}> {seconds} +0000", message::identity(form.name), message::identity(form.email));
    let mut commits: Vec<Oid> = Vec::with_capacity(count);
    for after in 0..count {
        let mut content = format!("tree {tree}\n");
        if let Some(next) = commits.last() {
            writeln!(content, "parent {next}").expect("writing to a string does not fail");
        }
        write!(content, "author {identity}\ncommitter {identity}\n\n{}", message(after))
            .expect("writing to a string does not fail");
        commits.push(add(Kind::Commit, content.as_bytes()));
    }
    pack.finish(&git_dir.join("objects/pack"))?;
    commits.reverse();
    Ok(commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_commit_leads_to_all_that_follow_and_git_likes_them() {
        let folder = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(folder.path()).unwrap();
        let form = Form { name: "gitcd", email: "gitcd@localhost", file: ("README", "what this is\n") };
        let commits = write(folder.path(), form, 5, |after| format!("{after} to go\n")).unwrap();
        assert_eq!(commits.len(), 5);
        let mut at = repository.find_commit(commits[0]).unwrap();
        for (number, oid) in commits.iter().enumerate() {
            assert_eq!(at.id(), *oid);
            assert_eq!(at.message(), Ok(&*format!("{} to go\n", 4 - number)));
            if number < 4 {
                at = at.parent(0).unwrap();
            }
        }
        assert_eq!(at.parent_count(), 0);
        repository.reference("refs/heads/master", commits[0], false, "").unwrap();
        let fsck = std::process::Command::new("git").arg("-C").arg(folder.path()).args(["fsck", "--strict"]).output();
        let fsck = fsck.unwrap();
        assert!(fsck.status.success() && fsck.stderr.is_empty(), "{fsck:?}");
    }
}
