//! Objects of recent pushes, in memory: followers fetch them next.

mod step;

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use self::step::Pushed;
pub(super) use self::step::{History, Step};
use gitcd_repo::received::Received;

/// Memory limit.
const MOST_BYTES: usize = 32 << 20;
/// Limit on pushes, for all repositories together.
const MOST: usize = 256;
/// Pushes that are searched for an object.
const LOOKED_THROUGH: usize = 16;

/// Cache of the objects of recent pushes, which are in their repositories, too. Cheap to clone. Calls block: they read the
/// identity of the repository.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Arc<Mutex<VecDeque<Push>>>);

#[derive(Clone, Debug)]
struct Push {
    repository: Place,
    received: Arc<Received>,
    step: Option<Arc<Step>>,
}

/// Identity of a repository, since another one may be created in the same folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    identity: Option<(u64, u64, Option<SystemTime>)>,
}

impl Place {
    fn of(repository: &Path) -> Self {
        let found = repository.join("objects").metadata().ok();
        let identity = found.map(|found| (found.dev(), found.ino(), found.created().ok()));
        Self { path: repository.to_owned(), identity }
    }
}

impl Recent {
    /// Adds a push, and evicts the oldest ones beyond the limits.
    pub(super) fn add(&self, repository: &Path, received: Received, step: Option<Step>) {
        let push = Push { repository: Place::of(repository), received: Arc::new(received), step: step.map(Arc::new) };
        let mut all = self.0.lock();
        all.push_front(push);
        all.truncate(MOST);
        while all.iter().map(|push| push.received.bytes()).sum::<usize>() > MOST_BYTES {
            all.pop_back();
        }
    }

    /// Returns the last pushes to a repository, newest first.
    pub(super) fn of(&self, repository: &Path) -> Vec<Arc<Received>> {
        let (repository, all) = (Place::of(repository), self.0.lock());
        let own = all.iter().filter(|push| push.repository == repository);
        own.map(|push| push.received.clone()).take(LOOKED_THROUGH).collect()
    }

    /// Returns the commit graph of the last pushes to a repository.
    pub(super) fn history(&self, repository: &Path) -> History {
        History(self.pushes(repository))
    }

    fn pushes(&self, repository: &Path) -> Vec<Pushed> {
        let (repository, all) = (Place::of(repository), self.0.lock());
        let own = all.iter().filter(|push| push.repository == repository);
        own.filter_map(|push| Some((push.step.clone()?, push.received.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use git2::{ObjectType, Odb, Oid, Repository};

    use super::*;
    use gitcd_repo::received::{Bounds, read};

    /// Returns a push of one blob of this size.
    fn push(bytes: usize, fill: u8) -> (Oid, Received) {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let oid = repository.odb().unwrap().write(ObjectType::Blob, &vec![fill; bytes]).unwrap();
        let mut builder = repository.packbuilder().unwrap();
        builder.insert_object(oid, None).unwrap();
        let mut pack = git2::Buf::new();
        builder.write_buf(&mut pack).unwrap();
        let bounds = Bounds { objects: 1, bytes: 1 << 30 };
        (oid, read(&pack, &Odb::new().unwrap(), &[], bounds).unwrap())
    }

    #[test]
    fn the_last_pushes_of_a_repository_are_kept_and_no_more_than_there_is_room_for() {
        let (recent, one, other) = (Recent::default(), Path::new("/one"), Path::new("/other"));
        let (first, received) = push(1 << 20, b'a');
        recent.add(one, received, None);
        let (_, received) = push(20, b'b');
        recent.add(other, received, None);
        let found = recent.of(one);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get(first), Some((ObjectType::Blob, &vec![b'a'; 1 << 20][..])));
        assert_eq!(recent.of(other)[0].get(first), None);
        let (_, received) = push(MOST_BYTES - (1 << 19), b'c');
        recent.add(other, received, None);
        assert_eq!((recent.of(one).len(), recent.of(other).len()), (0, 2), "the oldest push is evicted");
        let (_, received) = push(MOST_BYTES + 1, b'd');
        recent.add(one, received, None);
        assert!(recent.of(one).is_empty(), "the push exceeds the limit");
        for fill in 0..=u8::MAX {
            recent.add(one, push(1, fill).1, None);
        }
        recent.add(one, push(2, 0).1, None);
        assert_eq!(recent.of(one).len(), LOOKED_THROUGH);
        assert_eq!(recent.0.lock().len(), MOST);
    }
}
