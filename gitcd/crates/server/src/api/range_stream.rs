//! `KV.RangeStream`: a range in pages, each read when the client has room for it.
//!
//! All pages are read at one revision, and no page is read ahead: a slow client holds one message, whatever the size of the
//! range. As in etcd, the revision is not protected from compaction: the stream then fails, and the client starts again.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use gitcd_core::revision::Revision;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::query::{Filter, Range};
use gitcd_mvcc::version::Version;
use tonic::Status;

use super::range_counts::after;
use super::{Backend, check, key_value, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::mvccpb::KeyValue;

/// Limit on the pairs of a message, and of each look into the index, which blocks the writer.
const PAIRS: usize = 1000;
/// Fewest pairs that a look into the index asks for, if the limit of the request is not lower.
const MIN_PAIRS: usize = 16;
/// Limit on the bytes of a message, unless a single pair is larger: clients accept 4 MiB by default.
const BYTES: usize = 1 << 20;
/// Bytes of a pair besides key and value, at most: revisions, version, lease, lengths.
const PAIR_OVERHEAD_BYTES: usize = 64;

/// A `RangeStream` in progress.
pub(super) struct RangePages {
    backend: Backend,
    /// The keys that were not sent yet; `None` after the last page.
    keys: Option<KeyRange>,
    /// The revision of all pages; `None` before the first page if the newest was requested.
    at: Option<Revision>,
    /// The store's revision at the first page, for the header.
    header: Option<Revision>,
    /// Limit on all pairs.
    limit: Option<usize>,
    sent: usize,
    keys_only: bool,
    /// How many pairs to look up for the next page.
    next: usize,
}

/// A page of a range.
struct Page {
    pairs: Vec<Arc<Version>>,
    /// The keys after it; `None` if it is the last page.
    rest: Option<KeyRange>,
}

impl RangePages {
    /// Reads the first page; returns its message and the stream of all others.
    ///
    /// # Errors
    /// Those of a `Range`; `Unimplemented` for other orders and for filters.
    pub(super) async fn start(
        backend: Backend,
        request: pb::RangeRequest,
    ) -> Result<(pb::RangeStreamResponse, impl Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send), Status>
    {
        let (keys_only, is_serializable, is_count) = (request.keys_only, request.serializable, request.count_only);
        let Range { keys, revision: at, limit, .. } = check::range_stream(request)?;
        let (keys, limit) = (Some(keys), (limit > 0).then_some(limit));
        let mut pages = Self { backend, keys, at, header: None, limit, sent: 0, keys_only, next: PAIRS };
        let first = if is_count {
            let keys = pages.keys.take();
            let count = pages.count(keys).await?;
            pages.last(Vec::new(), false, count)
        } else {
            pages.message().await?
        };
        if !is_serializable {
            pages.backend.store.newest().map_err(status::from_store)?;
        }
        let rest = stream::try_unfold(pages, |mut pages: Self| async move {
            if pages.keys.is_none() {
                return Ok(None);
            }
            // Other requests on the connection are answered between two pages.
            tokio::task::yield_now().await;
            let message = pages.message().await?;
            Ok(Some((message, pages)))
        });
        Ok((first, rest))
    }

    /// Reads the next page, and returns its message.
    async fn message(&mut self) -> Result<pb::RangeStreamResponse, Status> {
        let Some(keys) = self.keys.take() else { return Err(Status::internal("gitcd: the stream has ended")) };
        let left = self.limit.map_or(usize::MAX, |limit| limit - self.sent);
        let Page { pairs, rest } = self.page(&keys, self.next.min(left), BYTES)?;
        self.sent += pairs.len();
        // Few pairs of large values are looked up in vain.
        self.next = (2 * pairs.len()).clamp(MIN_PAIRS, PAIRS);
        let pair = |version: &Arc<Version>| {
            if self.keys_only { Ok(key_value(version, Bytes::new())) } else { self.backend.pair(version) }
        };
        let kvs = pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let is_cut = rest.is_some() && self.limit == Some(self.sent);
        if rest.is_some() && !is_cut {
            self.keys = rest;
            return Ok(part(pb::RangeResponse { kvs, ..pb::RangeResponse::default() }));
        }
        let count = self.sent + self.count(rest).await?;
        Ok(self.last(kvs, is_cut, count))
    }

    /// Returns the last message: only this one has the header, `more` and the count.
    fn last(&self, kvs: Vec<KeyValue>, more: bool, count: usize) -> pb::RangeStreamResponse {
        let header = self.header.map(|revision| self.backend.header(revision));
        part(pb::RangeResponse { header, kvs, more, count: count as i64 })
    }

    /// Counts keys, a page at a time.
    async fn count(&mut self, mut keys: Option<KeyRange>) -> Result<usize, Status> {
        let mut count = 0;
        while let Some(range) = keys {
            let Page { pairs, rest } = self.page(&range, PAIRS, usize::MAX)?;
            count += pairs.len();
            keys = rest;
            tokio::task::yield_now().await;
        }
        Ok(count)
    }

    /// Looks up the first pairs of a range: at most `limit`, and at most so many bytes, but at least one pair. Holds the index's
    /// lock while it visits `limit` + 1 keys.
    fn page(&mut self, keys: &KeyRange, limit: usize, most_bytes: usize) -> Result<Page, Status> {
        let range = Range {
            keys: keys.clone(),
            revision: self.at,
            limit,
            count_only: false,
            sort: None,
            filter: Filter::default(),
            // Otherwise, the lookup would count the whole range.
            known_count: Some(0),
        };
        let mut found = self.backend.store.range(&range).map_err(status::from_store)?;
        let header = *self.header.get_or_insert(found.revision);
        self.at.get_or_insert(header);
        let mut bytes: usize = 0;
        let fits = found.pairs.iter().take_while(|version| {
            bytes = bytes.saturating_add(self.bytes(version));
            bytes <= most_bytes
        });
        let taken = fits.count().max(1).min(found.pairs.len());
        let more = found.more || taken < found.pairs.len();
        found.pairs.truncate(taken);
        let rest = found.pairs.last().filter(|_| more).and_then(|last| after(keys, &last.key));
        Ok(Page { pairs: found.pairs, rest })
    }

    /// Returns the most bytes that a pair takes in a message.
    fn bytes(&self, version: &Version) -> usize {
        let value = if self.keys_only { 0 } else { version.value_length as usize };
        version.key.len() + value + PAIR_OVERHEAD_BYTES
    }
}

fn part(response: pb::RangeResponse) -> pb::RangeStreamResponse {
    pb::RangeStreamResponse { range_response: Some(response) }
}
