//! Responses of a watch stream, whose events are encoded once for all watchers that receive the same.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::Message as _;
use prost::encoding::message;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use crate::proto::etcdserverpb::{WatchRequest, WatchResponse};
use crate::proto::mvccpb::Event;

/// Field number of the events in `etcdserverpb.WatchResponse`; the highest, so they are encoded last.
const EVENTS: u32 = 11;

/// A response of a watch stream. Encoded, it is an `etcdserverpb.WatchResponse`.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Everything but the events.
    head: WatchResponse,
    events: Bytes,
}

impl Response {
    pub(super) fn new(head: WatchResponse, events: Bytes) -> Self {
        debug_assert!(head.events.is_empty(), "they are given encoded");
        Self { head, events }
    }

    /// Appends the encoded message.
    pub fn encode(&self, out: &mut impl BufMut) {
        self.head.encode_raw(out);
        out.put_slice(&self.events);
    }
}

/// Encoded events.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    bytes: Bytes,
    /// Where each of them ends.
    ends: Arc<[usize]>,
}

impl Events {
    pub(super) fn encode<E>(events: impl Iterator<Item = Result<Event, E>>) -> Result<Self, E> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for event in events {
            message::encode(EVENTS, &event?, &mut bytes);
            ends.push(bytes.len());
        }
        bytes.shrink_to_fit();
        Ok(Self { bytes: bytes.into(), ends: ends.into() })
    }

    /// Returns the number of events.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of bytes of all events.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all events.
    pub(super) fn whole(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the events in parts that are smaller than `limit` together with a head of `head` bytes, unless an event alone is
    /// larger. Source: `sendFragments` of etcd (`server/etcdserver/api/v3rpc/watch.go`).
    pub(super) fn parts(&self, head: usize, limit: usize) -> impl Iterator<Item = Bytes> {
        let (mut start, mut number) = (0, 0);
        std::iter::from_fn(move || {
            let mut end = *self.ends.get(number)?;
            number += 1;
            while let Some(next) = self.ends.get(number).filter(|next| head + **next - start < limit) {
                end = *next;
                number += 1;
            }
            let part = self.bytes.slice(start..end);
            start = end;
            Some(part)
        })
    }
}

/// Decodes requests, and appends the encoded events to the responses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchCodec;

impl Codec for WatchCodec {
    type Encode = Response;
    type Decode = WatchRequest;
    type Encoder = Self;
    type Decoder = ProstDecoder<WatchRequest>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for WatchCodec {
    type Item = Response;
    type Error = Status;

    fn encode(&mut self, response: Response, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(response.head.encoded_len() + response.events.len());
        response.encode(out);
        Ok(())
    }
}
