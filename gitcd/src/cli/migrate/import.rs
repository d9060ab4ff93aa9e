//! `gitcd migrate import`: a running etcd becomes a branch.
//!
//! A snapshot of etcd becomes the branch. Then every revision that etcd has written since is written to it, as a transaction
//! of its own, so that keys have the same revisions and versions. The branch itself is the record of how far the copy has come,
//! so an interrupted import continues there.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use gitcd_engine::backup::Backup;
use gitcd_engine::recovery::{self, OpenError, import};
use gitcd_repo::branch;
use gitcd_server::server::{Config, Server};

use super::Temporary;
use super::copy::Copy;
use super::digest::{Digest, Digested};
use super::source::{self, Compacted, Source};
use crate::cli::progress::{Progress, Step};
use crate::cli::stop::Stop;
use crate::cli::{Common, boolean};

/// How long etcd may be unreachable before an import that is not to follow it fails.
const PATIENCE: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: source::Flags,
    #[command(flatten)]
    common: Common,
    /// Keep copying what etcd writes, until the command is stopped
    #[arg(long, env = "GITCD_FOLLOW", value_parser = boolean, conflicts_with = "cut_over")]
    follow: bool,
    /// End the import: etcd refuses all writes from then on, the rest is copied and compared, and the branch can be served
    #[arg(long, env = "GITCD_CUT_OVER", value_parser = boolean)]
    cut_over: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let names = branches.names(&[]);
    let [name] = &names[..] else {
        bail!("an etcd becomes one branch, and the flags name {}: {}", names.len(), names.join(", "));
    };
    let config = branches.branch(name);
    let runtime = crate::cli::runtime()?;
    runtime.block_on(import(args, config)).with_context(|| format!("cannot import into branch {name:?}"))
}

async fn import(args: &Args, config: branch::Config) -> anyhow::Result<()> {
    let stop = Stop::by_signal()?;
    let source = Source::connect(&args.source).await?;
    let cluster_id = source.newest().await?.cluster_id;
    match origin(&config)? {
        None => begin(&source, &config, cluster_id).await?,
        Some(origin) => ensure!(
            origin.cluster_id == cluster_id,
            "{} is of the cluster {cluster_id:x}, and the branch is being imported from {:x}",
            source.url,
            origin.cluster_id
        ),
    }
    let server = Server::start(Config { imports: true, ..Config::new(config.clone()) }).await?;
    let run = Run { args, stop, copy: Copy::new(server.store().clone()), cluster_id, frozen: Cell::default() };
    let outcome = run.copy_or_thaw(source).await;
    // Everything that was copied is kept.
    let stopped = server.stop().await;
    let outcome = outcome?;
    stopped?;
    match outcome {
        Outcome::Stopped(revision) => {
            trishanku_stdio::println!("stopped at revision {revision}; run it again to continue");
        }
        Outcome::InStep(revision, digested) => trishanku_stdio::println!(
            "copied: revision {revision}, {}; run it again to copy what etcd writes from now on, or with --cut-over to move to gitcd",
            shown(&digested)
        ),
        Outcome::CutOver { revision, digested, frozen } => {
            import::end(&recovery::lock(&config)?)?;
            trishanku_stdio::println!(
                "cut over: revision {revision}, {}, the same in both; etcd refused writes for {:.1} s so far. Stop etcd, and serve \
                 the branch at its address",
                shown(&digested),
                frozen.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}

fn shown(Digested { sha256, keys }: &Digested) -> String {
    let first = sha256.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    format!("{keys} keys (hash {first:016x})")
}

/// Returns where the branch is being imported from; `None` if it does not exist.
fn origin(config: &branch::Config) -> anyhow::Result<Option<import::Origin>> {
    let lock = match recovery::lock(config) {
        Err(OpenError::Missing { .. }) => return Ok(None),
        lock => lock?,
    };
    match import::origin(&lock)? {
        None if is_branch(config)? => bail!(
            "{} in {} exists already, and is not being imported; give another --repo",
            config.data_reference,
            config.repository.display()
        ),
        origin => Ok(origin),
    }
}

fn is_branch(config: &branch::Config) -> anyhow::Result<bool> {
    let repository = crate::cli::open_repository(&config.repository)?;
    let names = [&config.data_reference, &config.metadata_reference];
    Ok(names.into_iter().any(|name| repository.find_reference(name).is_ok()))
}

/// Creates the branch from a snapshot of etcd.
async fn begin(source: &Source, config: &branch::Config, cluster_id: u64) -> anyhow::Result<()> {
    let file = Temporary::beside(&config.repository, ".importing");
    source.snapshot(&file.0).await?;
    let config = config.clone();
    let created = tokio::task::spawn_blocking(move || {
        let backup = {
            let _shown = Step::start("reading the snapshot");
            Backup::read(&file.0)?
        };
        let _shown = Step::start(format!("creating the branch with {} keys", backup.pairs.len()));
        import::begin(&config, &backup, &import::Origin { cluster_id }).map_err(anyhow::Error::from)
    });
    created.await??;
    Ok(())
}

/// How an import ended.
enum Outcome {
    /// It was stopped.
    Stopped(i64),
    /// Everything was copied that etcd had when the command began.
    InStep(i64, Digested),
    /// Everything was copied, and etcd accepts no more writes.
    CutOver { revision: i64, digested: Digested, frozen: Instant },
}

/// A run of the command, on a branch that exists.
struct Run<'a> {
    args: &'a Args,
    stop: Stop,
    copy: Copy,
    cluster_id: u64,
    frozen: Cell<Option<Frozen>>,
}

/// An etcd that refuses writes.
#[derive(Clone, Copy)]
struct Frozen {
    /// The member whose alarm says so.
    member_id: u64,
    since: Instant,
}

impl Run<'_> {
    /// Unless the branch can be served afterwards, etcd accepts writes again.
    async fn copy_or_thaw(&self, source: Source) -> anyhow::Result<Outcome> {
        let outcome = self.copy_all(source).await;
        let Some(frozen) = self.frozen.get().filter(|_| !matches!(outcome, Ok(Outcome::CutOver { .. }))) else {
            return outcome;
        };
        let thaw = async { Source::connect(&self.args.source).await?.freeze(frozen.member_id, false).await };
        let Err(error) = thaw.await else { return outcome };
        let error = error.context("etcd still refuses writes: run `etcdctl alarm disarm`, or this command again");
        match outcome {
            Ok(_) => Err(error),
            Err(outcome) => {
                tracing::error!("{error:#}");
                Err(outcome)
            }
        }
    }

    async fn copy_all(&self, mut source: Source) -> anyhow::Result<Outcome> {
        let mut reached = Instant::now();
        loop {
            let ended = tokio::select! {
                ended = self.copy_from(&source, &mut reached) => ended,
                () = self.stop.requested() => return Ok(Outcome::Stopped(self.copy.revision())),
            };
            let error = match ended {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let is_transient =
                error.chain().any(|cause| cause.is::<tonic::Status>() || cause.is::<tonic::transport::Error>());
            if !is_transient || !self.args.follow && reached.elapsed() > PATIENCE {
                return Err(error);
            }
            tracing::warn!("{error:#}; trying again");
            source = loop {
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => {}
                    () = self.stop.requested() => return Ok(Outcome::Stopped(self.copy.revision())),
                }
                match Source::connect(&self.args.source).await {
                    Ok(source) => break source,
                    Err(error) if self.args.follow || reached.elapsed() < PATIENCE => {
                        tracing::warn!("{error:#}; trying again");
                    }
                    Err(error) => return Err(error),
                }
            };
        }
    }

    /// Copies over one connection. `reached` is when etcd last sent something.
    async fn copy_from(&self, source: &Source, reached: &mut Instant) -> anyhow::Result<Outcome> {
        let seen = source.newest().await?;
        ensure!(seen.cluster_id == self.cluster_id, "{} is another cluster now: {:x}", source.url, seen.cluster_id);
        ensure!(
            seen.revision >= self.copy.revision(),
            "{} is at revision {}, before revision {} of the branch: it was set back; remove the branch, and import it again",
            source.url,
            seen.revision,
            self.copy.revision()
        );
        let (first, mut progress) = (self.copy.revision() + 1, Progress::new());
        let mut changes = source.watch(first).await?;
        let mut target = if self.args.follow { i64::MAX } else { seen.revision };
        // After a lost connection, another member may answer.
        let member_id = self.frozen.get().map_or(seen.member_id, |frozen| frozen.member_id);
        let mut is_frozen = false;
        loop {
            while self.copy.revision() < target {
                let response = changes.next().await.map_err(remedy)?;
                *reached = Instant::now();
                self.copy.write(source, response.events).await?;
                let behind = response.header.map_or(0, |header| header.revision - self.copy.revision());
                progress.show(format_args!("copying the changes: revision {}, {behind} behind", self.copy.revision()));
            }
            progress.end();
            if self.args.cut_over && !is_frozen {
                let since = self.frozen.get().map_or_else(Instant::now, |frozen| frozen.since);
                self.frozen.set(Some(Frozen { member_id, since }));
                source.freeze(member_id, true).await.context("etcd cannot be made to refuse writes")?;
                is_frozen = true;
                // Writes that were acknowledged before are at most at this revision.
                target = source.newest().await?.revision;
                continue;
            }
            self.copy.settle_leases(source).await?;
            let (digested, revision) = (self.compare(source).await?, self.copy.revision());
            return Ok(match self.frozen.get() {
                Some(frozen) => Outcome::CutOver { revision, digested, frozen: frozen.since },
                None => Outcome::InStep(revision, digested),
            });
        }
    }

    /// Compares all pairs at the branch's newest revision.
    async fn compare(&self, source: &Source) -> anyhow::Result<Digested> {
        let _shown = Step::start("comparing all keys");
        let (store, revision) = (self.copy.store().clone(), self.copy.revision());
        let ours = tokio::task::spawn_blocking(move || Digest::of(&store));
        let mut theirs = Digest::default();
        source.each(revision, |pair| theirs.add(pair)).await?;
        let (ours, theirs) = (ours.await??, theirs.finish());
        ensure!(
            ours == theirs,
            "at revision {revision}, the branch has {} and etcd has {}: this is an error of gitcd, please report it",
            shown(&ours),
            shown(&theirs)
        );
        Ok(ours)
    }
}

fn remedy(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Compacted>() {
        return error.context(
            "the copy cannot go on from the branch; remove the branch, and import it again (--follow keeps up)",
        );
    }
    error
}
