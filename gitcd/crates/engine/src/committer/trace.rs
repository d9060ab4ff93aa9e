//! Traces of packs: the commits in a pack, and what makes it durable.

use gitcd_core::revision::Revision;
use tracing::field::Empty;
use tracing::{Span, info_span};

use gitcd_core::trace::{self, TARGET};

/// The trace of the open pack.
#[derive(Debug)]
pub(super) struct Trace {
    branch: String,
    pack: Span,
}

impl Trace {
    pub(super) fn new(branch: &str) -> Self {
        Self { branch: branch.to_owned(), pack: Span::none() }
    }

    /// Returns the span of one commit.
    pub(super) fn commit(&mut self, first: Revision, last: Revision, changes: usize) -> Span {
        if !trace::on() {
            return Span::none();
        }
        info_span!(
            target: TARGET,
            parent: self.pack(),
            "git.commit",
            otel.status_code = Empty,
            gitcd.revision.first = first.get(),
            gitcd.revision.last = last.get(),
            gitcd.changes = changes,
        )
    }

    /// Returns the span of writing the pack and moving the references.
    pub(super) fn flush(&mut self, revision: Revision) -> Span {
        if !trace::on() {
            return Span::none();
        }
        info_span!(
            target: TARGET,
            parent: self.pack(),
            "git.flush",
            otel.status_code = Empty,
            gitcd.revision.last = revision.get(),
            gitcd.commits = Empty,
            gitcd.bytes = Empty,
        )
    }

    /// Ends the trace: the pack is in Git, or was given up.
    pub(super) fn end(&mut self) {
        self.pack = Span::none();
    }

    fn pack(&mut self) -> &Span {
        if self.pack.is_none() {
            self.pack = info_span!(target: TARGET, parent: None, "git.pack", gitcd.branch = self.branch);
        }
        &self.pack
    }
}
