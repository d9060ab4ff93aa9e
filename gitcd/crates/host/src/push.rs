//! Pushes.
//!
//! The order makes crashes harmless: objects enter a quarantine that no reader sees, are checked there together with everything
//! they refer to, become durable, join the repository as one pack, and only then references move to them. From the check until then,
//! no gitcd prunes the repository.

mod apply;
mod commands;
mod create;
mod decide;
mod plain;
mod quarantine;
mod reference;
mod report;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use gitcd_core::blocking::Panicked;
use gitcd_core::error::chain;
use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::pkt_line;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_sync::lease;
use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::create::{Created, PREFIX as NEW_REPOSITORY};
pub(super) use self::plain::MEMORY as PLAIN_MEMORY_BYTES;
pub(super) use self::quarantine::{KEEP, Kept, LOCK as QUARANTINE_LOCK, PREFIX as QUARANTINE};

use self::commands::Push;
use self::quarantine::Quarantine;
use self::report::Report;
use super::Inner;
use super::access::Access;
use super::input::Input;
use super::name::Name;
use super::problem::{Problem, blocking};
use super::service::{Service, answer};
use super::upkeep;

/// Limit on the commands of a push, which are held in memory.
const MAX_COMMAND_BYTES: u64 = 8 << 20;
/// How much of a refused pack is read and discarded, so that the client reads the report.
const MAX_UNWANTED_BYTES: u64 = 64 << 20;

/// How many commands of a push are logged one by one.
const MAX_LOGGED: usize = 1000;

/// The repository that a push goes to.
#[derive(Debug)]
pub(super) enum Target {
    Present(PathBuf),
    /// Created by the push.
    New(Name),
}

/// The client that pushes.
#[derive(Clone, Debug)]
pub(super) struct By {
    pub(super) user: Option<String>,
    pub(super) access: Access,
}

/// Advertises all references and the host's capabilities.
pub(super) async fn advertise(host: &Inner, target: &Target) -> Result<Response, Problem> {
    const CAPABILITIES: &str =
        "report-status delete-refs side-band-64k quiet atomic ofs-delta object-format=sha1 agent=gitcd/";
    let references = match target {
        Target::New(name) => {
            let (root, name) = (host.root.clone(), name.clone());
            let place = blocking("find the place of a repository", move || name.place(&root)).await?;
            place.ok_or(Problem::Forbidden)?;
            Vec::new()
        }
        Target::Present(repository) => {
            let repository = repository.clone();
            let listed = blocking("list references", move || Refs::open(&repository)?.list());
            let listed = listed.await?.map_err(|error| failed(&error))?;
            listed.into_iter().map(|(name, id)| (id.to_string(), name)).collect()
        }
    };
    let nothing = || vec![("0".repeat(40), "capabilities^{}".to_owned())];
    let references = if references.is_empty() { nothing() } else { references };
    let mut body = Vec::new();
    pkt_line::put(&mut body, b"# service=git-receive-pack\n");
    body.extend_from_slice(pkt_line::FLUSH);
    let mut capabilities = format!("\0{CAPABILITIES}{}", env!("CARGO_PKG_VERSION"));
    for (id, name) in references {
        pkt_line::put(&mut body, format!("{id} {name}{}\n", std::mem::take(&mut capabilities)).as_bytes());
    }
    body.extend_from_slice(pkt_line::FLUSH);
    Ok(answer(Service::ReceivePack.advertisement_type(), Body::from(body)))
}

/// Handles a push. Once everything has arrived it completes, even if the client disconnects.
pub(super) async fn serve(
    host: &Arc<Inner>,
    target: Target,
    by: By,
    headers: &HeaderMap,
    body: Body,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let max_bytes = host.limits.max_pack_bytes.saturating_add(MAX_COMMAND_BYTES);
    let input = Input::open(headers, body, max_bytes, host.limits.idle)?;
    let host = host.clone();
    // In a task of its own, since the request's future is dropped with its connection.
    let done = tokio::spawn(async move {
        let _permit = permit;
        receive(&host, target, by, input).await
    });
    let report = done.await.unwrap_or_else(|error| {
        tracing::error!(error = %Panicked::of_task("handle a push", error), "a push failed");
        Err(Problem::Failed)
    })?;
    Ok(answer(Service::ReceivePack.result_type(), Body::from(report)))
}

async fn receive(host: &Arc<Inner>, target: Target, by: By, mut input: Input) -> Result<Vec<u8>, Problem> {
    let Some(push) = Push::read(&mut input, MAX_COMMAND_BYTES).await? else {
        // A probe for authentication, which Git sends before a large push.
        return Ok(pkt_line::FLUSH.to_vec());
    };
    let created = match &target {
        Target::Present(_) => None,
        Target::New(name) => Some(Created::make(&host.root, name, &push.commands).await?),
    };
    let repository = match (&target, &created) {
        (Target::Present(repository), _) => repository.clone(),
        (Target::New(_), Some(created)) => created.folder().to_owned(),
        (Target::New(_), None) => return Err(Problem::Failed),
    };
    // A new repository has a temporary name until it is published.
    let shown = created.as_ref().map_or_else(|| repository.clone(), |created| created.place().to_owned());
    let push = Arc::new(push);
    let mut report = Report::new(&push);
    let refused = {
        let (push, repository) = (push.clone(), repository.clone());
        blocking("check the names of references", move || decide::names(&push, by.access, &repository))
    };
    for (at, reason) in refused.await? {
        report.refuse(at, &reason);
    }
    let brings_objects = push.commands.iter().any(|command| command.new.is_some());
    let (mut quarantine, mut in_use) = (None, None);
    if brings_objects && !report.is_hopeless() && created.is_none() {
        // The new commits may need objects that no reference leads to.
        let repository = repository.clone();
        match blocking("lock the objects of a repository", move || ObjectsInUse::to_receive(&repository)).await? {
            Ok(locked) => in_use = Some(locked),
            Err(error) => {
                tracing::warn!(%error, "a push is refused");
                report.refuse_all(
                    "another process has locked the objects of the repository, and may be pruning them; try again",
                );
            }
        }
    }
    if report.is_hopeless() {
        input.drain(MAX_UNWANTED_BYTES).await;
    } else if brings_objects {
        let made = Quarantine::make(&repository).await?;
        let outcome = unpack::unpack(host, &repository, &made, &push, &mut report, &mut input).await;
        match outcome {
            Ok(received) => quarantine = Some((made, received)),
            Err(unpack::Failure::Problem(problem)) => {
                made.remove().await;
                return Err(problem);
            }
            Err(unpack::Failure::Unusable(reason)) => {
                made.remove().await;
                report.unusable(&reason);
                input.drain(MAX_UNWANTED_BYTES).await;
            }
        }
    }
    if report.is_hopeless() {
        if let Some((useless, _)) = quarantine {
            useless.remove().await;
        }
        if let Some(created) = created {
            created.remove().await;
        }
    } else {
        let mut kept = match quarantine {
            Some((quarantine, received)) => {
                let kept = quarantine.migrate(&host.kept).await?;
                if let Some((received, step)) = received {
                    let (recent, repository) = (host.recent.clone(), repository.clone());
                    // Only a cache.
                    let _added = blocking("remember a push", move || recent.add(&repository, received, step)).await;
                }
                kept
            }
            None => Vec::new(),
        };
        // An unpublished repository needs no protection from repacks, and its folder is about to be renamed.
        if created.is_some() {
            quarantine::release(std::mem::take(&mut kept)).await;
        }
        apply::apply(host, &repository, created, &by, &push, &mut report).await;
        drop(in_use);
        let has_packs = !kept.is_empty();
        quarantine::release(kept).await;
        if has_packs {
            upkeep::after_push(host, repository.clone());
        }
    }
    log(&push, &report, &shown, by.user.as_deref());
    Ok(report.encode())
}

/// Logs the outcome of each command; of a push with many, only the first ones.
fn log(push: &Push, report: &Report, repository: &Path, user: Option<&str>) {
    let repository = repository.display();
    for (at, command) in push.commands.iter().enumerate().take(MAX_LOGGED) {
        let reference = &command.reference;
        let (old, new) = (id(command.old), id(command.new));
        match report.reason(at) {
            // A lease is renewed every few seconds: too often for the info level.
            None if old.len() == new.len() && reference.starts_with(lease::LEASES) => {
                tracing::debug!(%repository, reference, old, new, user, "pushed");
            }
            None => tracing::info!(%repository, reference, old, new, user, "pushed"),
            Some(reason) => tracing::info!(%repository, reference, old, new, user, reason, "push refused"),
        }
    }
    let others = push.commands.get(MAX_LOGGED..).unwrap_or_default();
    if !others.is_empty() {
        let refused = (MAX_LOGGED..push.commands.len()).filter(|at| report.is_refused(*at)).count();
        tracing::info!(%repository, user, others = others.len(), refused, "pushed more references");
    }
}

/// Formats an id for the log.
fn id(id: Option<git2::Oid>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

fn failed(error: &RefError) -> Problem {
    tracing::error!(error = chain(error), "a push failed");
    Problem::Failed
}
