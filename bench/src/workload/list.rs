//! Reads of many keys.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use gitcd::proto::etcdserverpb::RangeRequest;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use tonic::transport::Channel;

use super::closed::Closed;
use super::{Load, Spec};
use crate::client::revision_in;
use crate::data::SECRETS;
use crate::load::{Done, Step};

/// kube-apiserver's default for a client that pages.
const PAGE: i64 = 500;

/// Page after page, each starting after the last key of the previous one, all at the revision of the first.
pub(super) const PAGED: Closed<Pager> = Closed {
    spec: Spec {
        name: "list-500",
        what: "list 10,000 keys in pages of 500 at the first page's revision; a page is counted",
        unit: "pages",
        clients: 16,
        weight: 1.0,
        whole: false,
        goal: Some(3.0),
        load: Load::Pages { limit: PAGE },
        keys: SECRETS,
    },
    client: |target, number| Pager {
        kv: target.client.kv(number),
        cursor: Bytes::from(SECRETS.prefix()),
        revision: 0,
        left: SECRETS.keys as i64,
    },
};

pub(super) struct Pager {
    kv: KvClient<Channel>,
    cursor: Bytes,
    /// The list's revision; 0 before its first page.
    revision: i64,
    /// Keys still missing from the list.
    left: i64,
}

impl Step for Pager {
    async fn step(&mut self) -> Result<Done> {
        let page = RangeRequest {
            key: self.cursor.clone(),
            range_end: SECRETS.end(),
            limit: PAGE,
            revision: self.revision,
            ..RangeRequest::default()
        };
        let answer = self.kv.range(page).await?.into_inner();
        let revision = revision_in(answer.header.as_ref());
        let (brought, left) = (answer.kvs.len() as i64, self.left);
        ensure!(
            answer.count == left && brought == left.min(PAGE) && answer.more == (left > PAGE),
            "with {left} keys left, a page has {brought} keys, count {} and more {}",
            answer.count,
            answer.more
        );
        if answer.more {
            let last = answer.kvs.last().context("a page with more is empty")?;
            self.cursor = [&last.key[..], b"\0"].concat().into();
            if self.revision == 0 {
                self.revision = revision;
            }
            self.left -= brought;
        } else {
            self.cursor = Bytes::from(SECRETS.prefix());
            self.revision = 0;
            self.left = SECRETS.keys as i64;
        }
        Ok(Done { revision, conflicts: 0 })
    }
}

/// All keys in one response.
pub(super) const WHOLE: Closed<Lister> = Closed {
    spec: Spec {
        name: "list-10000",
        what: "list 10,000 keys (7 MB) in one response",
        unit: "lists",
        clients: 4,
        weight: 1.0,
        whole: false,
        goal: Some(1.4),
        load: Load::List,
        keys: SECRETS,
    },
    client: |target, number| Lister { kv: target.client.kv(number) },
};

pub(super) struct Lister {
    kv: KvClient<Channel>,
}

impl Step for Lister {
    async fn step(&mut self) -> Result<Done> {
        let all =
            RangeRequest { key: Bytes::from(SECRETS.prefix()), range_end: SECRETS.end(), ..RangeRequest::default() };
        let answer = self.kv.range(all).await?.into_inner();
        let brought = answer.kvs.len() as u64;
        ensure!(brought == SECRETS.keys, "the list has {brought} keys");
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}
