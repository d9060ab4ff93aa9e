//! Remotes over HTTP, in Git's smart protocol. What this client does not support is left to the `git` program.

use std::pin::pin;

use git2::{Oid, Repository};
use gitcd_repo::refs::Refs;
use gitcd_repo::transfer::{self, Bounds};
use tokio::runtime::Handle;

use super::program::ProgramTransport;
use super::{Discovery, FetchRequest, Local, Objects, Push, Transport, TransportError, Update, track};
use crate::smart::{self, Exchange, Service};
use crate::status::Condition;

/// Limits of a push from memory; larger ones are left to the `git` program.
const LARGEST: Bounds = Bounds { commits: 10_000, bytes: 32 << 20 };

/// The transport over HTTP.
pub(super) struct HttpTransport<'r> {
    /// For what this client does not support.
    pub(super) program: ProgramTransport<'r>,
}

impl Transport for HttpTransport<'_> {
    fn discover(&self, wanted: Discovery<'_>) -> Result<Vec<(String, Oid)>, TransportError> {
        let prefix;
        let beginnings = match wanted {
            Discovery::Names(names) => names,
            Discovery::Prefix(start) => {
                prefix = [start];
                &prefix[..]
            }
        };
        match self.exchange(Service::Fetch, async |exchange| exchange.references(beginnings).await) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.program.discover(wanted),
            Err(error) => Err(self.program.with_hint(error)),
        }
    }

    fn fetch(&self, request: &FetchRequest<'_>) -> Result<u64, TransportError> {
        let git_dir = self.program.local.git_dir;
        let here = Repository::open(git_dir).map_err(|error| TransportError::here(error.message()))?;
        let odb = here.odb().map_err(|error| TransportError::here(error.message()))?;
        let mut oids: Vec<Oid> = request.wanted.iter().map(|wanted| wanted.oid).collect();
        let mut seen = Vec::new();
        if request.objects == Objects::Missing {
            let refs = Refs::open(git_dir).map_err(TransportError::here)?;
            for wanted in request.wanted {
                seen.extend(refs.read(&wanted.tracking).map_err(TransportError::here)?);
            }
            oids.retain(|oid| !odb.exists(*oid));
            oids.sort_unstable();
            oids.dedup();
        }
        let mut bytes = 0;
        if !oids.is_empty() {
            let have = smart::have(&here, &odb, &seen, request.own);
            let progress = &self.program.local.link.progress;
            let _running = progress.begin();
            let receive = async |exchange: &Exchange<'_>| exchange.fetch(&here, &oids, &have, progress).await;
            let received = self.exchange(Service::Fetch, receive)?;
            let Some(incoming) = received.flatten() else { return self.program.fetch(request) };
            let both = incoming.with(git_dir).map_err(|error| TransportError::here(error.message()))?;
            let mut packs = self.program.local.link.fetching.lock();
            // Copied into a pack that grows from fetch to fetch, and only if no object is missing.
            let copied = match request.objects {
                Objects::Missing => packs.copy(&both, &here, &oids).map(drop),
                Objects::All => packs.copy_again(&both, &here, &oids, request.own).map(drop),
            };
            copied.map_err(|error| TransportError::received(&error))?;
            bytes = incoming.bytes;
        }
        if request.objects == Objects::Missing {
            track(git_dir, request.wanted)?;
        }
        Ok(bytes)
    }

    fn push(&self, push: &Push) -> Result<u64, TransportError> {
        let updates: Vec<Update> = push.updates.iter().filter(|(_, new, old)| *old != Some(*new)).cloned().collect();
        if updates.is_empty() {
            return Ok(0);
        }
        let pushed = self.exchange(Service::Push, async |exchange| {
            let wanted: Vec<Oid> = updates.iter().map(|(_, new, _)| *new).collect();
            let there = updates.iter().filter_map(|(.., old)| *old).chain(push.there.iter().copied());
            let there: Vec<Oid> = there.collect();
            let here =
                Repository::open(self.program.local.git_dir).map_err(|error| TransportError::here(error.message()))?;
            match transfer::thin(&here, &wanted, &there, Vec::new(), LARGEST).map_err(TransportError::here)? {
                Some(pack) => exchange.push(&updates, pack).await.map(Some),
                // Too large for memory: the program streams its pack.
                None => Ok(None),
            }
        });
        match pushed.map(Option::flatten) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => self.program.push(push),
            Err(error) => Err(self.program.with_hint(error)),
        }
    }
}

impl HttpTransport<'_> {
    /// Runs an exchange; `None` if the remote is left to the program.
    fn exchange<T>(
        &self,
        service: Service,
        speak: impl AsyncFnOnce(&Exchange<'_>) -> Result<T, TransportError>,
    ) -> Result<Option<T>, TransportError> {
        let ProgramTransport { local: Local { git_dir, credentials, link, limit }, url } = self.program;
        Handle::current().block_on(async {
            let spoken = async {
                match link.session.begin(git_dir, url, credentials, service).await? {
                    Some(exchange) => speak(&exchange).await.map(Some),
                    None => Ok(None),
                }
            };
            let mut spoken = pin!(spoken);
            let mut steps = link.progress.steps();
            loop {
                if let Ok(done) = tokio::time::timeout(limit, spoken.as_mut()).await {
                    return done;
                }
                // A long fetch may take longer, as long as it makes progress.
                if std::mem::replace(&mut steps, link.progress.steps()) == steps {
                    // The connection may be dead.
                    link.session.forget(service);
                    let said = format!("timed out after {limit:?}");
                    return Err(TransportError::new(Condition::Unreachable, said));
                }
            }
        })
    }
}
