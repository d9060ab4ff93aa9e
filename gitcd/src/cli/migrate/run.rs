//! A run of `gitcd migrate import`, on a branch that exists.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gitcd_engine::recovery::import::{self, Origin};
use gitcd_mvcc::Store;
use gitcd_repo::branch;
use gitcd_server::proto::etcdserverpb::AlarmType;

use super::client::{ClusterState, EtcdClient, KeyWatch, RETRY, Silent, is_transient};
use super::copier::RevisionCopier;
use super::digest::{Digest, Digested};
use super::import::{Args, shown};
use crate::cli::progress::{Progress, Step};
use crate::cli::stop::Stop;

/// Time limit for reconnecting without --follow.
const PATIENCE: Duration = Duration::from_mins(1);
/// After a silence of this length, the newest revision is read: a watch that is behind it is opened again.
const SILENCE: Duration = Duration::from_secs(10);
/// etcd is frozen when the copy is at most so many revisions behind, or does not get closer.
const CLOSE: i64 = 500;
/// Time limit for the steps after the freeze.
const FREEZE: Duration = Duration::from_mins(10);
/// Interval at which leases and the compact revision of etcd are copied with --follow.
const UPKEEP: Duration = Duration::from_mins(1);

/// How an import ended.
pub(super) enum ImportOutcome {
    /// It was stopped.
    Stopped(i64),
    /// Everything was copied that etcd had when the command began.
    InStep(i64, Digested),
    /// Everything was copied, and etcd accepts no more writes.
    CutOver { revision: i64, digested: Digested, since: Instant },
}

/// A run of the command.
pub(super) struct ImportRun<'a> {
    args: &'a Args,
    stop: &'a Stop,
    config: &'a branch::Config,
    copier: RevisionCopier,
    origin: RefCell<Origin>,
}

impl<'a> ImportRun<'a> {
    pub(super) fn new(
        args: &'a Args,
        stop: &'a Stop,
        config: &'a branch::Config,
        store: Arc<Store>,
        origin: Origin,
    ) -> Self {
        Self { args, stop, config, copier: RevisionCopier::new(store), origin: RefCell::new(origin) }
    }

    /// The member whose alarm makes etcd refuse writes.
    pub(super) fn frozen_member(&self) -> Option<u64> {
        self.origin.borrow().frozen_member
    }

    /// Copies, and connects again if the connection is lost.
    ///
    /// # Errors
    /// Those of etcd and of the store. etcd may refuse writes then: see [`Self::frozen_member`].
    pub(super) async fn copy(&self, mut etcd: EtcdClient) -> anyhow::Result<ImportOutcome> {
        let mut reached = Instant::now();
        loop {
            let error = match self.copy_from(&etcd, &mut reached).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let is_patient = |reached: Instant| self.args.follow || reached.elapsed() < PATIENCE;
            if !is_transient(&error) || !is_patient(reached) {
                return Err(error);
            }
            tracing::warn!("{error:#}; trying again");
            etcd = loop {
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => {}
                    () = self.stop.requested() => return Ok(ImportOutcome::Stopped(self.copier.revision())),
                }
                match EtcdClient::connect(&self.args.etcd).await {
                    Ok(etcd) => break etcd,
                    Err(error) if is_patient(reached) => tracing::warn!("{error:#}; trying again"),
                    Err(error) => return Err(error),
                }
            };
        }
    }

    /// Copies over one connection. `reached` is when etcd last sent something.
    async fn copy_from(&self, etcd: &EtcdClient, reached: &mut Instant) -> anyhow::Result<ImportOutcome> {
        let mut state = etcd.newest().await?;
        self.check(etcd, state)?;
        let mut watch = etcd.watch(self.copier.revision() + 1).await?;
        let mut behind = i64::MAX;
        loop {
            let target = if self.args.follow { i64::MAX } else { state.revision };
            if !self.copy_until(etcd, &mut watch, target, reached).await? {
                return Ok(ImportOutcome::Stopped(self.copier.revision()));
            }
            state = etcd.newest().await?;
            let before = std::mem::replace(&mut behind, state.revision - self.copier.revision());
            // If etcd writes as fast as this copies, waiting does not help.
            if !self.args.cut_over || behind <= CLOSE || behind >= before {
                break;
            }
        }
        self.copier.reconcile_leases(etcd).await?;
        self.copier.compact(etcd).await?;
        let digested = self.compare(etcd).await?;
        if !self.args.cut_over {
            return Ok(ImportOutcome::InStep(self.copier.revision(), digested));
        }
        let since = Instant::now();
        let cut_over = self.cut_over(etcd, &mut watch, state.member_id, reached);
        match tokio::time::timeout(FREEZE, cut_over).await.context("the cut-over takes too long")?? {
            Some(digested) => Ok(ImportOutcome::CutOver { revision: self.copier.revision(), digested, since }),
            None => Ok(ImportOutcome::Stopped(self.copier.revision())),
        }
    }

    fn check(&self, etcd: &EtcdClient, state: ClusterState) -> anyhow::Result<()> {
        let cluster_id = self.origin.borrow().cluster_id;
        ensure!(state.cluster_id == cluster_id, "{} belongs to another cluster now: {:x}", etcd.url, state.cluster_id);
        ensure!(
            state.revision >= self.copier.revision(),
            "{} is at revision {}, before revision {} of the branch: it was restored from an older state; remove the branch, and \
             import again",
            etcd.url,
            state.revision,
            self.copier.revision()
        );
        Ok(())
    }

    /// Makes etcd refuse writes, and copies and compares the rest. Returns `None` if the command is stopped.
    async fn cut_over(
        &self,
        etcd: &EtcdClient,
        watch: &mut KeyWatch,
        member_id: u64,
        reached: &mut Instant,
    ) -> anyhow::Result<Option<Digested>> {
        // Recorded first, so that the alarm is known to be ours even if this process is killed. After a lost connection, another
        // member may answer, but the alarm is still that of the first.
        let member_id = {
            let mut origin = self.origin.borrow_mut();
            *origin.frozen_member.get_or_insert(member_id)
        };
        import::record(self.config, &self.origin.borrow())?;
        etcd.freeze(member_id, true).await.context("etcd cannot be made to refuse writes")?;
        // Writes that were acknowledged before are at most at this revision.
        let last = etcd.newest().await?.revision;
        if !self.copy_until(etcd, watch, last, reached).await? {
            return Ok(None);
        }
        self.copier.reconcile_leases(etcd).await?;
        let digested = self.compare(etcd).await?;
        // Before etcd 3.6, an alarm NOSPACE that is raised later replaces ours.
        let alarms = etcd.alarms().await?;
        let newest = etcd.newest().await?.revision;
        ensure!(
            newest == last && alarms == [(member_id, AlarmType::Corrupt)],
            "etcd did not refuse all writes: it went from revision {last} to {newest}, and its alarms are {alarms:?}"
        );
        Ok(Some(digested))
    }

    /// Copies changes until a revision. Returns whether it was reached: not if the command is stopped.
    async fn copy_until(
        &self,
        etcd: &EtcdClient,
        watch: &mut KeyWatch,
        target: i64,
        reached: &mut Instant,
    ) -> anyhow::Result<bool> {
        let (mut progress, mut kept_up) = (Progress::new(), Instant::now());
        while self.copier.revision() < target {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, watch.next()) => next,
                () = self.stop.requested() => return Ok(false),
            };
            let Ok(next) = next else {
                ensure!(etcd.newest().await?.revision <= self.copier.revision(), Silent);
                *reached = Instant::now();
                continue;
            };
            let response = next?;
            *reached = Instant::now();
            self.copier.write(etcd, response.events).await?;
            let behind = response.header.map_or(0, |header| header.revision - self.copier.revision());
            progress.show(format_args!("copying changes: revision {}, {behind} behind", self.copier.revision()));
            if target == i64::MAX && kept_up.elapsed() > UPKEEP {
                kept_up = Instant::now();
                self.copier.reconcile_leases(etcd).await?;
                self.copier.compact(etcd).await?;
            }
        }
        Ok(true)
    }

    /// Compares all pairs at the branch's newest revision.
    async fn compare(&self, etcd: &EtcdClient) -> anyhow::Result<Digested> {
        let _shown = Step::start("comparing all keys");
        let (store, revision) = (self.copier.store().clone(), self.copier.revision());
        let ours = tokio::task::spawn_blocking(move || Digest::of(&store));
        let mut theirs = Digest::default();
        etcd.each(revision, |pair| theirs.add(pair)).await?;
        let (ours, theirs) = (ours.await??, theirs.finish());
        ensure!(
            ours == theirs,
            "at revision {revision}, the branch has {} and etcd has {}: this is a bug of gitcd, please report it; remove the branch \
             to import again",
            shown(&ours),
            shown(&theirs)
        );
        Ok(ours)
    }
}
