//! A hash of all key-value pairs, to compare two servers.

use gitcd_mvcc::Store;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::version::ValueLost;
use gitcd_server::proto::mvccpb::KeyValue;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of all pairs in key order: keys, values, revisions, versions and leases, all with their lengths. etcd's own `HashKV`
/// also depends on the order of the changes in a transaction, which is not in every format.
#[derive(Debug, Default)]
pub(super) struct Digest {
    hasher: Sha256,
    keys: usize,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digested {
    pub(super) sha256: [u8; 32],
    pub(super) keys: usize,
}

impl Digest {
    pub(super) fn add(&mut self, pair: &KeyValue) {
        self.keys += 1;
        for part in [&pair.key, &pair.value] {
            self.hasher.update((part.len() as u64).to_be_bytes());
            self.hasher.update(part);
        }
        for number in [pair.create_revision, pair.mod_revision, pair.version, pair.lease] {
            self.hasher.update(number.to_be_bytes());
        }
    }

    pub(super) fn finish(self) -> Digested {
        Digested { sha256: self.hasher.finalize().into(), keys: self.keys }
    }

    /// Returns that of a store at its newest revision.
    ///
    /// # Errors
    /// [`ValueLost`] if a value cannot be read back.
    pub(super) fn of(store: &Store) -> Result<Digested, ValueLost> {
        let all = KeyRange::From(bytes::Bytes::new());
        let versions: Vec<_> = store.with_index(|index, revision| index.range(&all, revision).cloned().collect());
        let mut digest = Self::default();
        for version in versions {
            digest.add(&KeyValue {
                key: version.key.clone(),
                value: version.value(store.segments())?,
                create_revision: version.create_revision.get(),
                mod_revision: version.mod_revision.get(),
                version: version.version,
                lease: version.lease,
            });
        }
        Ok(digest.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn digest(pairs: &[KeyValue]) -> Digested {
        let mut digest = Digest::default();
        pairs.iter().for_each(|pair| digest.add(pair));
        digest.finish()
    }

    #[test]
    fn every_field_of_a_pair_counts() {
        let pair = KeyValue {
            key: "/a".into(),
            value: "bc".into(),
            create_revision: 2,
            mod_revision: 3,
            version: 2,
            lease: 7,
        };
        let others = [
            KeyValue { key: "/ab".into(), value: "c".into(), ..pair.clone() },
            KeyValue { value: "bd".into(), ..pair.clone() },
            KeyValue { create_revision: 3, mod_revision: 2, ..pair.clone() },
            KeyValue { mod_revision: 4, ..pair.clone() },
            KeyValue { version: 1, ..pair.clone() },
            KeyValue { lease: 0, ..pair.clone() },
        ];
        for other in others {
            assert_ne!(digest(from_ref(&pair)), digest(from_ref(&other)), "{other:?}");
        }
        assert_ne!(digest(from_ref(&pair)), digest(&[pair.clone(), pair]));
    }
}
