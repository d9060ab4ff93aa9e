//! The writer: one thread, and one fsync for all writes that wait.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use gitcd::proto::etcdserverpb::compare::{CompareResult, TargetUnion};
use gitcd::proto::etcdserverpb::request_op::Request as Op;
use gitcd::proto::etcdserverpb::response_op::Response as Answered;
use gitcd::proto::etcdserverpb::{
    CompactionResponse, Compare, PutRequest, PutResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::keys::KeyVersion;
use super::log::Log;
use super::store::{State, Store};
use super::{header, unsupported};

/// Length of the queue, and writes that may share one fsync: as in gitcd.
pub(super) const QUEUE: usize = 1024;
const BATCH: usize = 512;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Status>>;

/// A request that changes something.
#[derive(Debug)]
pub(super) enum Command {
    Put(PutRequest, Reply<PutResponse>),
    Txn(TxnRequest, Reply<TxnResponse>),
    Compact(i64, Reply<CompactionResponse>),
}

/// An answer that waits for the fsync.
enum Answer {
    Put(Reply<PutResponse>, Result<PutResponse, Status>),
    Txn(Reply<TxnResponse>, Result<TxnResponse, Status>),
    Compact(Reply<CompactionResponse>, Result<CompactionResponse, Status>),
}

impl Answer {
    fn send(self) {
        // A client that has cancelled its request does not receive the answer.
        match self {
            Self::Put(reply, answer) => drop(reply.send(answer)),
            Self::Txn(reply, answer) => drop(reply.send(answer)),
            Self::Compact(reply, answer) => drop(reply.send(answer)),
        }
    }
}

/// The writer of a store.
#[derive(Debug)]
pub(super) struct Writer {
    store: Arc<Store>,
    log: Log,
}

impl Writer {
    /// Creates the writer of an empty store.
    pub(super) fn new(store: Arc<Store>, log: Log) -> Self {
        Self { store, log }
    }

    /// Runs until nothing can send commands any more. Blocks.
    ///
    /// # Errors
    /// If the log cannot be written; waiting requests are cancelled then.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Command>) -> Result<()> {
        let mut commands = Vec::with_capacity(BATCH);
        while inbox.blocking_recv_many(&mut commands, BATCH) > 0 {
            let (answers, revision) = {
                let store = self.store.clone();
                let mut state = store.write();
                let answers: Vec<_> = commands.drain(..).map(|command| self.execute(command, &mut state)).collect();
                (answers, state.revision)
            };
            self.log.commit().context("cannot write the log")?;
            self.store.publish(revision);
            answers.into_iter().for_each(Answer::send);
        }
        Ok(())
    }

    fn execute(&mut self, command: Command, state: &mut State) -> Answer {
        match command {
            Command::Put(request, reply) => Answer::Put(reply, self.put(request, state)),
            Command::Txn(request, reply) => Answer::Txn(reply, self.txn(request, state)),
            Command::Compact(revision, reply) => {
                let compacted = state.compact(revision, self.store.visible());
                Answer::Compact(reply, compacted.map(|()| CompactionResponse { header: Some(header(state.revision)) }))
            }
        }
    }

    fn put(&mut self, request: PutRequest, state: &mut State) -> Result<PutResponse, Status> {
        check_put(&request)?;
        let revision = state.revision + 1;
        let response = self.apply(request, state, revision);
        state.revision = revision;
        Ok(response)
    }

    fn apply(&mut self, request: PutRequest, state: &mut State, revision: i64) -> PutResponse {
        let PutRequest { key, value, prev_kv, .. } = request;
        let change = state.put(key, value, revision);
        self.log.append(&change.key, &change.version);
        let previous = change.previous.filter(|_| prev_kv).map(|previous| previous.pair(&change.key));
        PutResponse { header: Some(header(revision)), prev_kv: previous }
    }

    fn txn(&mut self, request: TxnRequest, state: &mut State) -> Result<TxnResponse, Status> {
        let TxnRequest { compare, success, failure } = request;
        check_branch(&success)?;
        check_branch(&failure)?;
        let mut succeeded = true;
        for one in &compare {
            succeeded &= holds(one, state)?;
        }
        let (revision, before) = (state.revision + 1, state.revision);
        let mut current = before;
        let mut responses = Vec::new();
        for op in if succeeded { success } else { failure } {
            let answered = match op.request {
                Some(Op::RequestPut(put)) => {
                    current = revision;
                    Answered::ResponsePut(self.apply(put, state, revision))
                }
                Some(Op::RequestRange(range)) => Answered::ResponseRange(state.range(&range, current)?),
                _ => return Err(unsupported("this operation in a transaction")),
            };
            responses.push(ResponseOp { response: Some(answered) });
        }
        state.revision = current;
        Ok(TxnResponse { header: Some(header(current)), succeeded, responses })
    }
}

fn check_put(request: &PutRequest) -> Result<(), Status> {
    if request.key.is_empty() {
        return Err(Status::invalid_argument("etcdserver: key is not provided"));
    }
    if request.lease != 0 || request.ignore_value || request.ignore_lease {
        return Err(unsupported("leases, ignore_value and ignore_lease"));
    }
    Ok(())
}

/// Checks a branch of a transaction before any of it is applied: only puts of different keys, and ranges before them.
fn check_branch(ops: &[RequestOp]) -> Result<(), Status> {
    let mut put = HashSet::<&Bytes>::new();
    for op in ops {
        match &op.request {
            Some(Op::RequestPut(request)) => {
                check_put(request)?;
                if !put.insert(&request.key) {
                    return Err(Status::invalid_argument("etcdserver: duplicate key given in txn request"));
                }
            }
            // A range could fail, and puts before it cannot be undone.
            Some(Op::RequestRange(_)) if put.is_empty() => {}
            _ => return Err(unsupported("this operation in a transaction")),
        }
    }
    Ok(())
}

fn holds(compare: &Compare, state: &State) -> Result<bool, Status> {
    if !compare.range_end.is_empty() {
        return Err(unsupported("comparisons of ranges"));
    }
    let newest = state.keys.find(&compare.key).map(|key| &key.newest);
    let number = |what: fn(&KeyVersion) -> i64, wanted: &i64| newest.map_or(0, what).cmp(wanted);
    let order = match &compare.target_union {
        Some(TargetUnion::Version(wanted)) => number(|version| version.number, wanted),
        Some(TargetUnion::CreateRevision(wanted)) => number(|version| version.create_revision, wanted),
        Some(TargetUnion::ModRevision(wanted)) => number(|version| version.mod_revision, wanted),
        _ => return Err(unsupported("comparisons of values and leases")),
    };
    Ok(match compare.result() {
        CompareResult::Equal => order == Ordering::Equal,
        CompareResult::NotEqual => order != Ordering::Equal,
        CompareResult::Greater => order == Ordering::Greater,
        CompareResult::Less => order == Ordering::Less,
    })
}
