//! What was pushed last, in memory: it is what followers fetch next.

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

/// Bytes that are kept.
const MOST_BYTES: usize = 32 << 20;
/// Pushes of all repositories.
const MOST: usize = 256;
/// Pushes that are looked through for an object.
const LOOKED_THROUGH: usize = 16;

/// The objects of the last pushes. They are in their repositories, too.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<Push>>);

#[derive(Clone, Debug)]
struct Push {
    repository: Place,
    received: Arc<Received>,
    step: Option<Arc<Step>>,
}

/// A repository: another one may come to be in the same folder.
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
    /// Keeps a push, instead of those that came longest ago.
    pub(super) fn add(&self, repository: &Path, received: Received, step: Option<Step>) {
        let push = Push { repository: Place::of(repository), received: Arc::new(received), step: step.map(Arc::new) };
        let mut all = self.0.lock();
        all.push_front(push);
        all.truncate(MOST);
        while all.iter().map(|push| push.received.bytes()).sum::<usize>() > MOST_BYTES {
            all.pop_back();
        }
    }

    /// The last pushes to a repository, the last one first.
    pub(super) fn of(&self, repository: &Path) -> Vec<Arc<Received>> {
        let (repository, all) = (Place::of(repository), self.0.lock());
        let own = all.iter().filter(|push| push.repository == repository);
        own.map(|push| push.received.clone()).take(LOOKED_THROUGH).collect()
    }

    /// How the commits of the last pushes to a repository follow one another.
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
        assert_eq!((recent.of(one).len(), recent.of(other).len()), (0, 2), "the one that came first has gone");
        let (_, received) = push(MOST_BYTES + 1, b'd');
        recent.add(one, received, None);
        assert!(recent.of(one).is_empty(), "it is too large");
        for fill in 0..=u8::MAX {
            recent.add(one, push(1, fill).1, None);
        }
        recent.add(one, push(2, 0).1, None);
        assert_eq!(recent.of(one).len(), LOOKED_THROUGH);
        assert_eq!(recent.0.lock().len(), MOST);
    }
}
