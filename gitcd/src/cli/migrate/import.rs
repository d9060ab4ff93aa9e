//! `gitcd migrate import`: a running etcd becomes a branch.
//!
//! A snapshot of etcd becomes the branch. Then every revision that etcd has written since is written to it, as a transaction
//! of its own, so that keys have the same revisions and versions. The branch itself records how far the copy has come,
//! so an interrupted import continues there.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use gitcd_engine::backup::Backup;
use gitcd_engine::recovery::{self, OpenError, import};
use gitcd_repo::branch;
use gitcd_server::proto::etcdserverpb::AlarmType;
use gitcd_server::server::{Config, Server};

use super::TemporaryFile;
use super::client::{self, EtcdClient, RETRY};
use super::digest::Digested;
use super::run::{ImportOutcome, ImportRun};
use crate::cli::progress::Step;
use crate::cli::stop::Stop;
use crate::cli::{Common, boolean};

/// Time limit for making etcd accept writes again.
const THAW: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) etcd: client::Flags,
    #[command(flatten)]
    common: Common,
    /// Keep copying what etcd writes, until the command is stopped
    #[arg(long, env = "GITCD_FOLLOW", value_parser = boolean, conflicts_with = "cut_over")]
    pub(super) follow: bool,
    /// End the import: etcd refuses all writes from then on, the rest is copied and compared, and the branch can be served
    #[arg(long, env = "GITCD_CUT_OVER", value_parser = boolean)]
    pub(super) cut_over: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let names = branches.names(&[]);
    let [name] = &names[..] else {
        bail!("the flags name {} branches ({}), and an etcd is imported into one", names.len(), names.join(", "));
    };
    let config = branches.branch(name);
    let runtime = crate::cli::runtime()?;
    runtime.block_on(import(args, config)).with_context(|| format!("cannot import into branch {name:?}"))
}

async fn import(args: &Args, config: branch::Config) -> anyhow::Result<()> {
    let stop = Stop::by_signal()?;
    let etcd = EtcdClient::connect(&args.etcd).await?;
    let cluster_id = etcd.newest().await?.cluster_id;
    let origin = if let Some(origin) = origin(&config)? {
        ensure!(
            origin.cluster_id == cluster_id,
            "{} belongs to the cluster {cluster_id:x}, and the branch is being imported from {:x}; check --endpoints, or give \
             another --repo",
            etcd.url,
            origin.cluster_id
        );
        origin
    } else {
        tokio::select! {
            begun = begin(&etcd, &config, cluster_id) => begun?,
            () = stop.requested() => bail!("stopped before the branch was created"),
        }
    };
    check_alarms(args, &etcd, &origin).await?;
    let server = Server::start(Config { imports: true, ..Config::new(config.clone()) }).await?;
    let run = ImportRun::new(args, &stop, &config, server.store().clone(), origin);
    let copied = run.copy(etcd).await;
    // Everything that was copied is kept.
    let stopped = server.stop().await;
    let ended = copied.and_then(|outcome| {
        stopped?;
        if matches!(outcome, ImportOutcome::CutOver { .. }) {
            import::end(&recovery::lock(&config)?)?;
        }
        Ok(outcome)
    });
    // Another run reports what a killed cut-over has left, and does not change it.
    if args.cut_over
        && let Some(member_id) = run.frozen_member()
        && !matches!(ended, Ok(ImportOutcome::CutOver { .. }))
    {
        thaw(args, &config, import::Origin { cluster_id, frozen_member: Some(member_id) }).await;
    }
    match ended? {
        ImportOutcome::Stopped(revision) => {
            trishanku_stdio::println!("stopped at revision {revision}; run it again to continue");
        }
        ImportOutcome::InStep(revision, digested) => trishanku_stdio::println!(
            "copied: revision {revision}, {}; run it again to copy what etcd writes from now on, or with --cut-over to move to gitcd",
            shown(&digested)
        ),
        ImportOutcome::CutOver { revision, digested, since } => trishanku_stdio::println!(
            "cut over: revision {revision}, {}, the same in both; etcd refused writes for {:.1} s so far. Stop etcd, and serve \
             the branch at its address",
            shown(&digested),
            since.elapsed().as_secs_f64()
        ),
    }
    Ok(())
}

/// Returns keys and hash for a person.
pub(super) fn shown(Digested { sha256, keys }: &Digested) -> String {
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
async fn begin(etcd: &EtcdClient, config: &branch::Config, cluster_id: u64) -> anyhow::Result<import::Origin> {
    let file = TemporaryFile::beside(&config.repository, ".importing")?;
    etcd.snapshot(&file.0).await?;
    let config = config.clone();
    let created = tokio::task::spawn_blocking(move || {
        let backup = {
            let _shown = Step::start("reading the snapshot");
            Backup::read(&file.0)?
        };
        let _shown = Step::start(format!("creating the branch with {} keys", backup.pairs.len()));
        let origin = import::Origin { cluster_id, frozen_member: None };
        import::begin(&config, &backup, &origin)?;
        anyhow::Ok(origin)
    });
    created.await?
}

/// Refuses a cut-over from an etcd with alarms of its own: they could end with that of the cut-over, or end it.
async fn check_alarms(args: &Args, etcd: &EtcdClient, origin: &import::Origin) -> anyhow::Result<()> {
    for (member_id, alarm) in etcd.alarms().await? {
        let is_ours = alarm == AlarmType::Corrupt && origin.frozen_member == Some(member_id);
        if is_ours && !args.cut_over {
            tracing::warn!(
                "etcd refuses writes since an earlier cut-over: run this with --cut-over, or `etcdctl alarm disarm`"
            );
        }
        ensure!(
            is_ours || !args.cut_over,
            "member {member_id:x} of etcd has the alarm {}; find its cause, and disarm it with `etcdctl alarm disarm`",
            alarm.as_str_name()
        );
    }
    Ok(())
}

/// Makes etcd accept writes again after a cut-over that failed.
async fn thaw(args: &Args, config: &branch::Config, mut origin: import::Origin) {
    let Some(member_id) = origin.frozen_member.take() else { return };
    let thawing = async {
        loop {
            let thawed = async { EtcdClient::connect(&args.etcd).await?.freeze(member_id, false).await };
            match thawed.await {
                Ok(()) => return,
                Err(error) => tracing::warn!("etcd cannot be made to accept writes again yet: {error:#}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    if tokio::time::timeout(THAW, thawing).await.is_err() {
        tracing::error!("etcd still refuses writes: run `etcdctl alarm disarm`, or this command again");
        return;
    }
    tracing::info!("etcd accepts writes again");
    if let Err(error) = import::record(config, &origin) {
        tracing::warn!("cannot record that etcd accepts writes again: {error}");
    }
}
