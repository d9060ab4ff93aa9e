//! Compaction as kube-apiserver does it, but by revisions instead of minutes, so that both servers keep the same history.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use gitcd::proto::etcdserverpb::request_op::Request as Op;
use gitcd::proto::etcdserverpb::{CompactionRequest, TxnRequest};

use crate::client::{self, Client};

/// The key by which kube-apiservers agree on who compacts.
const KEY: &[u8] = b"compact_rev_key";

/// Compacts a server whenever `every` revisions have passed, to the revision `every` earlier. So between one and two times
/// `every` revisions of history remain.
#[derive(Debug)]
pub(crate) struct Compactor {
    every: i64,
    next: AtomicI64,
    issued: AtomicU64,
}

impl Compactor {
    /// Creates a compactor for a server without history.
    pub(crate) fn new(every: i64) -> Self {
        Self { every, next: AtomicI64::new(2 * every), issued: AtomicU64::new(0) }
    }

    /// Number of compactions so far.
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// The revision at which it compacts next, and the revisions between two compactions: for a client that is another program.
    pub(crate) fn due(&self) -> (i64, i64) {
        (self.next.load(Ordering::Relaxed), self.every)
    }

    /// Compacts if the server's revision makes it due; otherwise costs one atomic read.
    pub(crate) async fn observe(&self, client: &Client, revision: i64) -> Result<()> {
        let next = self.next.load(Ordering::Relaxed);
        if revision < next {
            return Ok(());
        }
        // Of several clients past the mark, the one that moves it compacts.
        let moved = self.next.compare_exchange(next, next + self.every, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            self.compact(client, next - self.every).await?;
        }
        Ok(())
    }

    async fn compact(&self, client: &Client, revision: i64) -> Result<()> {
        let key = Bytes::from_static(KEY);
        let version = self.issued.load(Ordering::Relaxed) as i64;
        let value = Bytes::from(revision.to_string());
        let claim = TxnRequest {
            compare: vec![client::at_version(key.clone(), version)],
            success: vec![client::op(Op::RequestPut(client::put(key.clone(), value)))],
            failure: vec![client::op(Op::RequestRange(client::get(key)))],
        };
        let mut kv = client.kv(0);
        let claimed = kv.txn(claim).await?.into_inner().succeeded;
        ensure!(claimed, "compact_rev_key is not at version {version}");
        kv.compact(CompactionRequest { revision, physical: false }).await?;
        self.issued.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
