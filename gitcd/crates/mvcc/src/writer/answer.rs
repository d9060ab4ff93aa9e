//! Answers of the writer, and the traces of the requests that wait for them.

use gitcd_core::revision::Revision;
use gitcd_core::trace;
use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::Error;
use crate::lease::Report;
use crate::merge;
use crate::txn::Done;

/// The recipient of an answer.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<Result<T, Error>>,
    /// The span of the waiting request.
    span: Span,
}

impl<T> Reply<T> {
    /// Creates a reply for the request that this thread is serving.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (sender, answer) = oneshot::channel();
        (Self { sender, span: trace::current() }, answer)
    }

    pub(super) fn send(self, answer: Result<T, Error>) {
        // The receiver is gone if the client disconnected.
        let _ = self.sender.send(answer);
    }
}

/// An answer that waits for the fsync.
pub(super) enum Answer {
    Write(Reply<Done>, Result<Done, Error>),
    Merge(Reply<merge::Done>, Result<merge::Done, Error>),
    Grant(Reply<(i64, i64)>, Result<(i64, i64), Error>),
    Revision(Reply<Revision>, Result<Revision, Error>),
    KeptAlive(Reply<Option<i64>>, Result<Option<i64>, Error>),
    Lease(Reply<Option<Report>>, Result<Option<Report>, Error>),
    Leases(Reply<Vec<(i64, i64)>>, Result<Vec<(i64, i64)>, Error>),
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        match self {
            Self::Write(_, done) => done.is_ok(),
            Self::Merge(_, done) => done.is_ok(),
            Self::Grant(_, granted) => granted.is_ok(),
            Self::Revision(_, revision) => revision.is_ok(),
            Self::KeptAlive(_, ttl) => ttl.is_ok(),
            Self::Lease(_, lease) => lease.is_ok(),
            Self::Leases(_, leases) => leases.is_ok(),
        }
    }

    pub(super) fn send(self, outcome: &Result<(), Error>) {
        fn give<T>(reply: Reply<T>, answer: Result<T, Error>, outcome: &Result<(), Error>) {
            reply.send(outcome.clone().and(answer));
        }
        match self {
            Self::Write(reply, done) => give(reply, done, outcome),
            Self::Merge(reply, done) => give(reply, done, outcome),
            Self::Grant(reply, granted) => give(reply, granted, outcome),
            Self::Revision(reply, revision) => give(reply, revision, outcome),
            Self::KeptAlive(reply, ttl) => give(reply, ttl, outcome),
            Self::Lease(reply, lease) => give(reply, lease, outcome),
            Self::Leases(reply, leases) => give(reply, leases, outcome),
        }
    }

    fn span(&self) -> &Span {
        match self {
            Self::Write(reply, _) => &reply.span,
            Self::Merge(reply, _) => &reply.span,
            Self::Grant(reply, _) => &reply.span,
            Self::Revision(reply, _) => &reply.span,
            Self::KeptAlive(reply, _) => &reply.span,
            Self::Lease(reply, _) => &reply.span,
            Self::Leases(reply, _) => &reply.span,
        }
    }
}

/// Returns the span of a journal write, if a traced request waits for it: a child of the first such request, linked to the
/// others.
pub(super) fn span(answers: &[Answer], bytes: usize) -> Span {
    if !trace::on() {
        return Span::none();
    }
    let mut requests = answers.iter().map(Answer::span).filter(|span| !span.is_disabled());
    let Some(first) = requests.next() else { return Span::none() };
    let span = info_span!(
        target: trace::TARGET,
        parent: first,
        "journal.write",
        otel.status_code = Empty,
        gitcd.bytes = bytes,
        gitcd.answers = answers.len(),
    );
    for request in requests {
        span.follows_from(request);
    }
    span
}
