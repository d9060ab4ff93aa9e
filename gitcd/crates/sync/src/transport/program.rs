//! Remotes that only the `git` program reaches, such as those with SSH.

use git2::Oid;

use super::{Discovery, FetchRequest, Local, Objects, Push, Transport, TransportError, Wanted};
use crate::{hints, program};

/// The transport with the `git` program.
#[derive(Clone, Copy)]
pub(crate) struct ProgramTransport<'r> {
    pub(crate) local: Local<'r>,
    pub(crate) url: &'r str,
}

impl ProgramTransport<'_> {
    /// Adds a hint to an error. Every exchange starts with a discovery or a push, so these are the calls that are denied.
    pub(super) fn with_hint(&self, error: TransportError) -> TransportError {
        hints::add(error, self.url, self.local.credentials)
    }

    pub(super) fn list(&self, wanted: Discovery<'_>) -> Result<Vec<(String, Oid)>, TransportError> {
        let patterns: Vec<String> = match wanted {
            // `git ls-remote` also matches the ends of names; the caller looks for its own.
            Discovery::Names(names) => names.iter().map(|name| format!("{name}*")).collect(),
            Discovery::Prefix(prefix) => vec![format!("{prefix}*")],
        };
        let patterns: Vec<_> = patterns.iter().map(String::as_str).collect();
        program::list(self.local.git_dir, self.url, self.local.credentials, &patterns, self.local.limit)
    }

    pub(super) fn send(&self, push: &Push) -> Result<u64, TransportError> {
        program::push_within(self.local.limit, self.local.git_dir, self.url, self.local.credentials, &push.updates)
            .map(|()| 0)
            .map_err(|error| error.for_push_from(self.local.git_dir))
    }
}

impl Transport for ProgramTransport<'_> {
    fn discover(&self, wanted: Discovery<'_>) -> Result<Vec<(String, Oid)>, TransportError> {
        self.list(wanted).map_err(|error| self.with_hint(error))
    }

    fn fetch(&self, request: &FetchRequest<'_>) -> Result<u64, TransportError> {
        let Local { git_dir, credentials, link, .. } = self.local;
        let _running = link.progress.begin();
        match request.objects {
            Objects::Missing => {
                let pair = |wanted: &Wanted| (wanted.name.clone(), wanted.tracking.clone());
                let pairs: Vec<_> = request.wanted.iter().map(pair).collect();
                program::fetch(git_dir, self.url, credentials, &pairs, &link.progress)?;
            }
            Objects::All => {
                let names: Vec<&str> = request.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
                program::fetch_again(git_dir, self.url, credentials, &names, &link.progress)?;
            }
        }
        Ok(0)
    }

    fn push(&self, push: &Push) -> Result<u64, TransportError> {
        let updates: Vec<_> = push.updates.iter().filter(|(_, new, old)| *old != Some(*new)).cloned().collect();
        if updates.is_empty() {
            return Ok(0);
        }
        self.send(&Push { updates, there: Vec::new() }).map_err(|error| self.with_hint(error))
    }
}
