//! Small pushes, accepted in process: a few commits of plain files on top of commits that are present.
//!
//! These checks accept only a part of what `git index-pack --strict` and `git rev-list` accept. Everything else is left to them.

mod check;

use std::path::Path;
use std::sync::Arc;

use git2::{ObjectType, Oid, Repository};
use gitcd_repo::changes;
use gitcd_repo::received::{self, Bounds, Received};

use self::check::Check;
use super::super::Inner;
use super::super::input::Input;
use super::super::problem::{Problem, blocking};
use super::super::recent::{History, Step};
use super::quarantine::Quarantine;

/// Larger packs are left to Git.
const MAX_BYTES: usize = 4 << 20;
const MAX_OBJECTS: u32 = 16_384;
/// Limit on references, since each new id is looked for in the history of all of them.
const MAX_REFERENCES: usize = 64;
/// Limit on the uncompressed bytes of all objects.
const MAX_CONTENT: usize = 32 << 20;
/// What reading such a pack needs in memory: its content, deltas, and the pack itself as received and as written.
pub(in super::super) const MEMORY: u64 = 96 << 20;

/// Packs up to this size are read without a part of the host's [`Budget`](super::super::quota::Budget), and have less content.
const FEW_BYTES: usize = 64 << 10;
const FEW_CONTENT: usize = 4 << 20;

/// A reference and the commit that it is to move to.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) reference: String,
    pub(super) id: Oid,
}

/// The received objects, and the [`Step`] to the first wanted commit if there is one.
pub(super) type Taken = (Received, Option<Step>);

/// Stores the pack and returns its objects if all of it is plain; otherwise leaves the quarantine empty and the pack unread.
pub(super) async fn unpack(
    host: &Inner,
    repository: &Path,
    quarantine: &Quarantine,
    wanted: Vec<Wanted>,
    input: &mut Input,
) -> Result<Option<Taken>, Problem> {
    if wanted.len() > MAX_REFERENCES {
        return Ok(None);
    }
    let most = usize::try_from(host.limits.max_pack_bytes).unwrap_or(usize::MAX).min(MAX_BYTES);
    let Some(pack) = input.whole(most).await? else { return Ok(None) };
    let is_small = pack.len() <= FEW_BYTES;
    let room = if is_small { None } else { host.budget.take(MEMORY, host.limits.idle).await? };
    let content = if is_small { FEW_CONTENT } else { MAX_CONTENT };
    let recent = host.recent.clone();
    let (repository, folder) = (repository.to_owned(), quarantine.folder().to_owned());
    let taken = blocking("check a pack", move || {
        let _room = room;
        let (recent, history) = (recent.of(&repository), recent.history(&repository));
        let bounds = Bounds { objects: MAX_OBJECTS, bytes: content };
        let taken = take(&repository, &folder, &pack, &wanted, (&recent, &history), bounds).unwrap_or(None);
        if taken.is_none() {
            empty(&folder.join("pack"));
        }
        taken
    });
    let taken = taken.await?;
    if taken.is_some() {
        input.drain(u64::MAX).await;
    }
    Ok(taken)
}

/// Removes all files, best effort: what stays is checked again by Git, or removed with the quarantine.
fn empty(packs: &Path) {
    for entry in std::fs::read_dir(packs).into_iter().flatten().flatten() {
        let _gone = std::fs::remove_file(entry.path());
    }
}

fn take(
    repository: &Path,
    folder: &Path,
    pack: &[u8],
    wanted: &[Wanted],
    (recent, history): (&[Arc<Received>], &History),
    bounds: Bounds,
) -> Result<Option<Taken>, git2::Error> {
    let here = Repository::open(repository)?;
    let odb = here.odb()?;
    let Ok(received) = received::read(pack, &odb, recent, bounds) else { return Ok(None) };
    for (kind, _, content) in received.objects() {
        let is_plain = match kind {
            ObjectType::Blob => true,
            ObjectType::Tree => changes::is_plain(content),
            ObjectType::Commit => is_plain_commit(content),
            _ => false,
        };
        if !is_plain {
            return Ok(None);
        }
    }
    let mut check = Check::new(&here, &odb, &received, recent, history);
    // If the pack cannot be written, Git fails too and reports why.
    let is_taken = check.are_complete(wanted)? && received.draft(&folder.join("pack")).is_ok();
    let step = check.step.take();
    drop(check);
    Ok(is_taken.then_some((received, step)))
}

/// Whether a commit has only a tree, parents, an author and a committer in its header, formatted as Git writes them.
fn is_plain_commit(content: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(content) else { return false };
    let Some((head, _message)) = text.split_once("\n\n") else { return false };
    let is_id = |text: &str| text.len() == 40 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let mut lines = head.split('\n').peekable();
    if !lines.next().and_then(|line| line.strip_prefix("tree ")).is_some_and(is_id) {
        return false;
    }
    while let Some(parent) = lines.peek().and_then(|line| line.strip_prefix("parent ")) {
        if !is_id(parent) {
            return false;
        }
        lines.next();
    }
    let mut is_person = |word: &str| lines.next().and_then(|line| line.strip_prefix(word)).is_some_and(is_plain_person);
    is_person("author ")
        && is_person("committer ")
        && lines.next().is_none()
        && !head.contains('\r')
        && !content.contains(&0)
}

/// `Name <mail> 1700000000 +0100`
fn is_plain_person(text: &str) -> bool {
    let Some((name, rest)) = text.split_once(" <") else { return false };
    let Some((mail, rest)) = rest.split_once("> ") else { return false };
    let Some((time, zone)) = rest.split_once(' ') else { return false };
    let is_number =
        |text: &str, most: usize| !text.is_empty() && text.len() <= most && text.bytes().all(|c| c.is_ascii_digit());
    let is_free = |text: &str| !text.is_empty() && !text.contains(['<', '>', '\n']);
    is_free(name)
        && is_free(mail)
        && is_number(time, 10)
        && (time == "0" || !time.starts_with('0'))
        && zone.len() == 5
        && zone.starts_with(['+', '-'])
        && is_number(&zone[1..], 4)
}

#[cfg(test)]
mod handed_on;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_commits_pass() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let person = "A B <a@b> 1700000000 +0100";
        let commit = |head: &str| is_plain_commit(format!("{head}\n\nmessage\n").as_bytes());
        assert!(commit(&format!("tree {id}\nparent {id}\nparent {id}\nauthor {person}\ncommitter {person}")));
        assert!(commit(&format!("tree {id}\nauthor {person}\ncommitter {person}")));
        for head in [
            format!("tree {id}\nauthor {person}"),
            format!("parent {id}\nauthor {person}\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\nparent {id}\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\r\ncommitter {person}"),
            format!("tree {id}\nauthor {person}\ncommitter {person}\r"),
            format!("tree {id}\nauthor {person}\ncommitter {person}\ngpgsig x"),
            format!("tree {}\nauthor {person}\ncommitter {person}", &id[1..]),
            format!("tree {id}\nauthor A B a@b 1700000000 +0100\ncommitter {person}"),
            format!("tree {id}\nauthor A B <a@b> 0700000000 +0100\ncommitter {person}"),
            format!("tree {id}\nauthor A B <a@b> 1700000000 0100\ncommitter {person}"),
        ] {
            assert!(!commit(&head), "{head}");
        }
        assert!(!is_plain_commit(b"tree"));
    }
}
