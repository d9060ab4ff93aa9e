//! What was pushed last, in memory: it is what followers fetch next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::git::received::Received;

/// Bytes of all contents that are kept.
const MOST_BYTES: usize = 16 << 20;
/// Pushes that are looked through.
const MOST: usize = 16;

/// The objects of the last pushes. They are in their repositories, too.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<(PathBuf, Arc<Received>)>>);

impl Recent {
    /// Keeps a push, instead of those that came longest ago.
    pub(super) fn add(&self, repository: &Path, received: Received) {
        let mut all = self.0.lock();
        all.push_front((repository.to_owned(), Arc::new(received)));
        all.truncate(MOST);
        while all.iter().map(|(_, received)| received.len()).sum::<usize>() > MOST_BYTES {
            all.pop_back();
        }
    }

    /// The last pushes to a repository, the last one first.
    pub(super) fn of(&self, repository: &Path) -> Vec<Arc<Received>> {
        let all = self.0.lock();
        all.iter().filter(|(of, _)| of == repository).map(|(_, received)| received.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use git2::{ObjectType, Odb, Oid, Repository};

    use super::*;
    use crate::git::received::{Bounds, read};

    /// A push of one blob of so many bytes.
    fn push(bytes: usize, fill: u8) -> (Oid, Received) {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let oid = repository.odb().unwrap().write(ObjectType::Blob, &vec![fill; bytes]).unwrap();
        let mut builder = repository.packbuilder().unwrap();
        builder.insert_object(oid, None).unwrap();
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        let bounds = Bounds { objects: 1, bytes: 1 << 30 };
        (oid, read(&pack, &Odb::new().unwrap(), bounds).unwrap())
    }

    #[test]
    fn the_last_pushes_of_a_repository_are_kept_and_no_more_than_there_is_room_for() {
        let (recent, one, other) = (Recent::default(), Path::new("/one"), Path::new("/other"));
        let (first, received) = push(10, b'a');
        recent.add(one, received);
        let (_, received) = push(20, b'b');
        recent.add(other, received);
        let found = recent.of(one);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get(first), Some((ObjectType::Blob, &[b'a'; 10][..])));
        assert_eq!(recent.of(other)[0].get(first), None);
        let (_, received) = push(MOST_BYTES - 20, b'c');
        recent.add(other, received);
        assert_eq!((recent.of(one).len(), recent.of(other).len()), (0, 2), "the one that came first has gone");
        let (_, received) = push(MOST_BYTES + 1, b'd');
        recent.add(one, received);
        assert!(recent.of(one).is_empty(), "it is too large");
        for fill in 0..=u8::MAX {
            recent.add(one, push(1, fill).1);
        }
        assert_eq!(recent.of(one).len(), MOST);
    }
}
