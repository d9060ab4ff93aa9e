//! The records and their encoding (`docs/design/journal.md`).

use bytes::Bytes;

use gitcd_core::revision::Revision;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A write transaction: all of its changes, in order.
    Write(Write),
    /// A lease was granted.
    Grant {
        /// The lease.
        id: i64,
        /// Granted time to live in seconds.
        ttl: i64,
    },
    /// A lease was revoked or expired; its keys are deleted by a separate `Write`.
    Revoke {
        /// The lease.
        id: i64,
    },
    /// The store was compacted at this revision: history below it may be dropped.
    Compact(Revision),
    /// The state at this revision is in Git, so replay can start there.
    Committed {
        /// Last revision in the commit.
        revision: Revision,
        /// The metadata commit; the data commit is its last parent.
        metadata: [u8; 20],
    },
    /// The writes that follow, in the same frame or in the same parts of a frame, come from a merge of another branch.
    Merge(Merge),
}

/// A merge of another branch, which comprises the next `writes` write transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The revision of its first write, or that of the next write if it has none.
    pub first: Revision,
    /// How many writes; 0 if the merge only links the histories.
    pub writes: i64,
    /// The commit that was merged.
    pub theirs: [u8; 20],
    /// When it was merged: milliseconds since 1970.
    pub time_ms: i64,
    /// Whether our branch fast-forwards to their commit if it has no other changes.
    pub fast_forward: bool,
    /// The merge commit's message below its subject.
    pub notes: String,
    /// Blobs of theirs that are stored unchanged: index of the write, and blob ID.
    pub blobs: Vec<(i64, [u8; 20])>,
}

impl Merge {
    /// Returns the revision before its first write.
    pub fn before(&self) -> Revision {
        Revision::new(self.first.get() - 1)
    }

    /// Returns the revision of its last write; the revision before it if it has none.
    pub fn last(&self) -> Revision {
        Revision::new(self.first.get() + self.writes - 1)
    }
}

/// A write transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The transaction's revision.
    pub revision: Revision,
    /// When it was accepted: milliseconds since 1970.
    pub time_ms: i64,
    /// Who wrote, if known; empty otherwise.
    pub client: String,
    /// At most one for each key.
    pub changes: Vec<Change>,
}

/// What a write transaction does to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The new key-value pair, or `None` if the key was deleted.
    pub put: Option<Put>,
}

/// A stored key-value pair without its key and its modification revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Revision of the key's creation.
    pub create_revision: Revision,
    /// Writes since its creation, this one included.
    pub version: i64,
    /// Attached lease, or 0.
    pub lease: i64,
    /// The value.
    pub value: Bytes,
    /// Offset of the value from the start of the encoded payload; set by encoding and decoding.
    pub value_offset: usize,
}

const WRITE: u8 = 1;
const GRANT: u8 = 2;
const REVOKE: u8 = 3;
const COMPACT: u8 = 4;
const COMMITTED: u8 = 5;
const MERGE: u8 = 6;

/// A record that cannot be decoded although its checksum is right.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The payload ends inside a record.
    #[error("a record is cut short")]
    Short,
    /// Written by a newer gitcd.
    #[error("unknown record type {0}; a newer gitcd wrote this journal")]
    UnknownType(u8),
    /// The client name is not UTF-8, or a number does not fit.
    #[error("a field is malformed")]
    Malformed,
}

/// Appends a write transaction. Calls `placed` for every put with the index of its change and the offset of its value in `out`.
pub fn encode_write<'a>(
    out: &mut Vec<u8>,
    revision: Revision,
    time_ms: i64,
    client: &str,
    changes: impl ExactSizeIterator<Item = (&'a [u8], Option<PutRef<'a>>)>,
    mut placed: impl FnMut(usize, usize),
) {
    out.push(WRITE);
    varint(out, revision.get() as u64);
    varint(out, time_ms as u64);
    bytes(out, client.as_bytes());
    varint(out, changes.len() as u64);
    for (index, (key, put)) in changes.enumerate() {
        bytes(out, key);
        match put {
            None => out.push(0),
            Some(put) => {
                out.push(1);
                varint(out, put.create_revision.get() as u64);
                varint(out, put.version as u64);
                varint(out, put.lease as u64);
                varint(out, put.value.len() as u64);
                placed(index, out.len());
                out.extend_from_slice(put.value);
            }
        }
    }
}

/// A key-value pair to encode.
#[derive(Clone, Copy, Debug)]
pub struct PutRef<'a> {
    /// Revision of the key's creation.
    pub create_revision: Revision,
    /// Writes since its creation.
    pub version: i64,
    /// Attached lease, or 0.
    pub lease: i64,
    /// The value.
    pub value: &'a [u8],
}

impl Record {
    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Write(write) => {
                let changes = write.changes.iter().map(|change| {
                    let put = change.put.as_ref().map(|put| PutRef {
                        create_revision: put.create_revision,
                        version: put.version,
                        lease: put.lease,
                        value: &put.value,
                    });
                    (change.key.as_ref(), put)
                });
                encode_write(out, write.revision, write.time_ms, &write.client, changes, |_, _| {});
            }
            Self::Grant { id, ttl } => {
                out.push(GRANT);
                varint(out, *id as u64);
                varint(out, *ttl as u64);
            }
            Self::Revoke { id } => {
                out.push(REVOKE);
                varint(out, *id as u64);
            }
            Self::Compact(revision) => {
                out.push(COMPACT);
                varint(out, revision.get() as u64);
            }
            Self::Committed { revision, metadata } => {
                out.push(COMMITTED);
                varint(out, revision.get() as u64);
                out.extend_from_slice(metadata);
            }
            Self::Merge(merge) => {
                out.push(MERGE);
                varint(out, merge.first.get() as u64);
                varint(out, merge.writes as u64);
                out.extend_from_slice(&merge.theirs);
                varint(out, merge.time_ms as u64);
                out.push(u8::from(merge.fast_forward));
                bytes(out, merge.notes.as_bytes());
                varint(out, merge.blobs.len() as u64);
                for (write, blob) in &merge.blobs {
                    varint(out, *write as u64);
                    out.extend_from_slice(blob);
                }
            }
        }
    }

    /// Decodes all records of a payload. Keys and values are copied, each into its own allocation, so that a long-lived pair does
    /// not keep the payload in memory.
    ///
    /// # Errors
    /// [`DecodeError`] if the payload was not made by [`Record::encode`].
    pub fn decode_all(payload: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut cursor = Cursor { payload, at: 0 };
        let mut records = Vec::new();
        while cursor.at < payload.len() {
            records.push(cursor.record()?);
        }
        Ok(records)
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn bytes(out: &mut Vec<u8>, content: &[u8]) {
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

struct Cursor<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn record(&mut self) -> Result<Record, DecodeError> {
        Ok(match self.byte()? {
            WRITE => Record::Write(self.write()?),
            GRANT => Record::Grant { id: self.number()?, ttl: self.number()? },
            REVOKE => Record::Revoke { id: self.number()? },
            COMPACT => Record::Compact(Revision::new(self.number()?)),
            COMMITTED => {
                let revision = Revision::new(self.number()?);
                Record::Committed { revision, metadata: self.id()? }
            }
            MERGE => Record::Merge(self.merge()?),
            other => return Err(DecodeError::UnknownType(other)),
        })
    }

    fn merge(&mut self) -> Result<Merge, DecodeError> {
        let first = Revision::new(self.number()?);
        let (writes, theirs, time_ms) = (self.number()?, self.id()?, self.number()?);
        let fast_forward = match self.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Malformed),
        };
        let notes = std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Malformed)?.to_owned();
        let count = self.number()? as usize;
        let mut blobs = Vec::with_capacity(count.min((self.payload.len() - self.at) / 21));
        for _ in 0..count {
            blobs.push((self.number()?, self.id()?));
        }
        Ok(Merge { first, writes, theirs, time_ms, fast_forward, notes, blobs })
    }

    fn id(&mut self) -> Result<[u8; 20], DecodeError> {
        Ok(self.take(20)?.try_into().expect("20 bytes were taken"))
    }

    fn write(&mut self) -> Result<Write, DecodeError> {
        let revision = Revision::new(self.number()?);
        let time_ms = self.number()?;
        let client = self.bytes()?;
        let client = std::str::from_utf8(client).map_err(|_| DecodeError::Malformed)?.to_owned();
        let count = self.number()? as usize;
        // The count comes from disk: allocate for the bytes that exist, not for the count.
        let mut changes = Vec::with_capacity(count.min(self.payload.len() - self.at));
        for _ in 0..count {
            let key = Bytes::copy_from_slice(self.bytes()?);
            let put = match self.byte()? {
                0 => None,
                1 => {
                    let create_revision = Revision::new(self.number()?);
                    let version = self.number()?;
                    let lease = self.number()?;
                    let value = self.bytes()?;
                    let value_offset = self.at - value.len();
                    let value = Bytes::copy_from_slice(value);
                    Some(Put { create_revision, version, lease, value, value_offset })
                }
                _ => return Err(DecodeError::Malformed),
            };
            changes.push(Change { key, put });
        }
        Ok(Write { revision, time_ms, client, changes })
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.payload.get(self.at).ok_or(DecodeError::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<i64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number as i64);
            }
        }
        Err(DecodeError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(length).ok_or(DecodeError::Short)?;
        let taken = self.payload.get(self.at..end).ok_or(DecodeError::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.number()?).map_err(|_| DecodeError::Malformed)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_put() -> impl Strategy<Value = Put> {
        (any::<i64>(), any::<i64>(), any::<i64>(), proptest::collection::vec(any::<u8>(), 0..300)).prop_map(
            |(create, version, lease, value)| Put {
                create_revision: Revision::new(create),
                version,
                lease,
                value: value.into(),
                value_offset: 0,
            },
        )
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let change = (proptest::collection::vec(any::<u8>(), 0..40), proptest::option::of(any_put()))
            .prop_map(|(key, put)| Change { key: key.into(), put });
        prop_oneof![
            (any::<i64>(), any::<i64>(), ".{0,20}", proptest::collection::vec(change, 0..5)).prop_map(
                |(revision, time_ms, client, changes)| Record::Write(Write {
                    revision: Revision::new(revision),
                    time_ms,
                    client,
                    changes
                })
            ),
            (any::<i64>(), any::<i64>()).prop_map(|(id, ttl)| Record::Grant { id, ttl }),
            any::<i64>().prop_map(|id| Record::Revoke { id }),
            any::<i64>().prop_map(|revision| Record::Compact(Revision::new(revision))),
            (
                (any::<i64>(), any::<i64>(), any::<[u8; 20]>(), any::<i64>(), any::<bool>(), ".{0,20}"),
                proptest::collection::vec((any::<i64>(), any::<[u8; 20]>()), 0..3)
            )
                .prop_map(|((first, writes, theirs, time_ms, fast_forward, notes), blobs)| {
                    let first = Revision::new(first);
                    Record::Merge(Merge { first, writes, theirs, time_ms, fast_forward, notes, blobs })
                }),
            (any::<i64>(), any::<[u8; 20]>())
                .prop_map(|(revision, metadata)| Record::Committed { revision: Revision::new(revision), metadata }),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(records in proptest::collection::vec(any_record(), 0..8)) {
            let mut payload = Vec::new();
            for record in &records {
                record.encode(&mut payload);
            }
            let mut decoded = Record::decode_all(&payload).unwrap();
            for record in &mut decoded {
                let Record::Write(write) = record else { continue };
                for put in write.changes.iter_mut().filter_map(|change| change.put.as_mut()) {
                    let end = put.value_offset + put.value.len();
                    prop_assert_eq!(&payload[put.value_offset..end], &put.value[..]);
                    put.value_offset = 0;
                }
            }
            prop_assert_eq!(decoded, records);
        }

        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode_all(&payload);
        }
    }
}
