//! `KV.Range` without an intermediate message: pairs are encoded from the store straight into a response buffer of the exact
//! size. That halves the work of a list.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use gitcd_mvcc::query::Found;
use gitcd_mvcc::version::Version;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint, key_len};
use tonic::Status;

use super::{Backend, check, status};
use crate::proto::etcdserverpb::{RangeRequest, ResponseHeader};

/// Size of gRPC's prefix of a message: the compression flag and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

impl Backend {
    /// Looks up the pairs of a request.
    pub(super) fn find(&self, request: RangeRequest) -> Result<Found, Status> {
        let is_serializable = request.serializable;
        let mut range = check::range(request)?;
        range.known_count = self.pages.count(&range);
        let found = self.store.range(&range).map_err(status::from_store)?;
        if !is_serializable {
            self.store.newest().map_err(status::from_store)?;
        }
        self.pages.remember(&range, &found);
        Ok(found)
    }

    /// Returns the response as a framed message.
    pub(crate) fn range_frame(&self, request: RangeRequest) -> Result<Bytes, Status> {
        let keys_only = request.keys_only;
        let found = self.find(request)?;
        let value = |version: &Arc<Version>| {
            if keys_only { Ok(Bytes::new()) } else { version.value(self.store.segments()) }
        };
        let pair = |version: Arc<Version>| Ok(Pair::new(value(&version)?, version));
        let pairs = found.pairs.into_iter().map(pair).collect::<Result<Vec<_>, gitcd_mvcc::version::ValueLost>>();
        let answer = Answer {
            header: self.header(found.revision),
            pairs: pairs.map_err(|lost| status::from_store(lost.into()))?,
            more: found.more,
            count: found.count as u64,
        };
        let length = answer.length();
        let mut frame = Vec::with_capacity(PREFIX_BYTES + length);
        frame.put_u8(0);
        let too_large = |_| Status::resource_exhausted("the response is larger than 4 GiB");
        frame.put_u32(u32::try_from(length).map_err(too_large)?);
        answer.write(&mut frame);
        Ok(frame.into())
    }
}

/// A `RangeResponse`, not yet in protobuf.
#[derive(Debug)]
struct Answer {
    header: ResponseHeader,
    pairs: Vec<Pair>,
    more: bool,
    count: u64,
}

/// A `KeyValue`, not yet in protobuf.
#[derive(Debug)]
struct Pair {
    version: Arc<Version>,
    value: Bytes,
    /// Encoded length of the message.
    length: usize,
}

// Field numbers in `mvccpb.KeyValue` and `etcdserverpb.RangeResponse`.
const KEY: u32 = 1;
const CREATE_REVISION: u32 = 2;
const MOD_REVISION: u32 = 3;
const VERSION: u32 = 4;
const VALUE: u32 = 5;
const LEASE: u32 = 6;
const HEADER: u32 = 1;
const KVS: u32 = 2;
const MORE: u32 = 3;
const COUNT: u32 = 4;

/// Protobuf wire types.
const VARINT: u32 = 0;
const BYTES: u32 = 2;

impl Pair {
    fn new(value: Bytes, version: Arc<Version>) -> Self {
        let mut pair = Self { version, value, length: 0 };
        let bytes = bytes_length(KEY, &pair.version.key) + bytes_length(VALUE, &pair.value);
        let numbers = pair.numbers().into_iter().map(|(field, number)| number_length(field, number));
        pair.length = bytes + numbers.sum::<usize>();
        pair
    }

    fn numbers(&self) -> [(u32, u64); 4] {
        let version = &self.version;
        [
            (CREATE_REVISION, version.create_revision.get() as u64),
            (MOD_REVISION, version.mod_revision.get() as u64),
            (VERSION, version.version as u64),
            (LEASE, version.lease as u64),
        ]
    }

    fn write(&self, out: &mut impl BufMut) {
        let [create, modified, version, lease] = self.numbers();
        write_bytes(KEY, &self.version.key, out);
        for (field, number) in [create, modified, version] {
            write_number(field, number, out);
        }
        write_bytes(VALUE, &self.value, out);
        write_number(lease.0, lease.1, out);
    }
}

/// Returns the encoded length; 0 for a default value, which proto3 omits.
fn number_length(field: u32, number: u64) -> usize {
    if number == 0 { 0 } else { key_len(field) + encoded_len_varint(number) }
}

fn bytes_length(field: u32, bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { key_len(field) + encoded_len_varint(bytes.len() as u64) + bytes.len() }
}

fn write_tag(field: u32, wire_type: u32, out: &mut impl BufMut) {
    encode_varint(u64::from(field << 3 | wire_type), out);
}

fn write_number(field: u32, number: u64, out: &mut impl BufMut) {
    if number != 0 {
        write_tag(field, VARINT, out);
        encode_varint(number, out);
    }
}

fn write_bytes(field: u32, bytes: &[u8], out: &mut impl BufMut) {
    if !bytes.is_empty() {
        write_tag(field, BYTES, out);
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

impl Answer {
    fn length(&self) -> usize {
        let header = self.header.encoded_len();
        let pairs = self.pairs.iter().map(|pair| key_len(KVS) + encoded_len_varint(pair.length as u64) + pair.length);
        key_len(HEADER)
            + encoded_len_varint(header as u64)
            + header
            + pairs.sum::<usize>()
            + number_length(MORE, u64::from(self.more))
            + number_length(COUNT, self.count)
    }

    /// Appends the protobuf message.
    fn write(&self, out: &mut impl BufMut) {
        write_tag(HEADER, BYTES, out);
        encode_varint(self.header.encoded_len() as u64, out);
        self.header.encode_raw(out);
        for pair in &self.pairs {
            write_tag(KVS, BYTES, out);
            encode_varint(pair.length as u64, out);
            pair.write(out);
        }
        write_number(MORE, u64::from(self.more), out);
        write_number(COUNT, self.count, out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::etcdserverpb::RangeResponse;
    use gitcd_core::revision::Revision;

    fn any_bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![Just(0), 1..200_i64, any::<i64>()]
    }

    fn any_pair() -> impl Strategy<Value = Pair> {
        (any_bytes(), any_bytes(), any_number(), any_number(), any_number(), any_number()).prop_map(
            |(key, value, create, modified, version, lease)| {
                let (create, modified) = (Revision::new(create), Revision::new(modified));
                let version = Version::put(key, modified, create, version, lease, value.clone());
                Pair::new(value, Arc::new(version))
            },
        )
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_message(
            pairs in proptest::collection::vec(any_pair(), 0..6), more: bool, count: u64, revision: i64, member_id: u64,
        ) {
            let header = ResponseHeader { revision, member_id, ..ResponseHeader::default() };
            let kvs = pairs.iter().map(|pair| crate::api::key_value(&pair.version, pair.value.clone())).collect();
            let message = RangeResponse { header: Some(header), kvs, more, count: count as i64 };
            let mut written = Vec::new();
            let answer = Answer { header, pairs, more, count };
            answer.write(&mut written);
            prop_assert_eq!(answer.length(), written.len());
            prop_assert_eq!(written, message.encode_to_vec());
        }
    }
}
