//! Renewal of a lease until it is handed over or lost.

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use gitcd_core::error::chain as describe;
use gitcd_core::fence::Moment;
use tokio::sync::watch;

use super::Shared;
use super::chain::{self, Chain};
use super::mark::Mark;
use super::record::{Record, reference};
use super::remote::LeaseRemote;
use super::terms::{Found, Holding, renewal};
use crate::git_worker::blocking;
use crate::remote::RemoteError;
use crate::status::Condition;

/// The renewals of a lease. Its state stays valid if a renewal panics: what may have been sent is in doubt then.
#[derive(Debug)]
pub(super) struct LeaseRenewer {
    pub(super) upstream: LeaseRemote,
    pub(super) record: Record,
    pub(super) chain: Chain,
    pub(super) mark: Arc<Mark>,
    pub(super) holding: Holding,
    pub(super) shared: Arc<Shared>,
}

/// Error: another server has the lease.
#[derive(Debug)]
struct Lost;

/// Returns the timeout of an exchange about the lease. A slower one counts as failed, whatever its outcome.
pub(super) fn limit(duration: Duration) -> Duration {
    duration / 2
}

/// Returns the delay after a failed exchange.
pub(super) fn retry(duration: Duration) -> Duration {
    (duration / 12).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// Returns the delay after consecutive refusals and failures that only an operator can fix: exponential, up to 15 s.
pub(super) fn rest(duration: Duration, refusals: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(15);
    retry(duration).saturating_mul(2_u32.saturating_pow(refusals.min(16))).min(LONGEST)
}

/// Runs blocking work, and waits for it slightly longer than `limit`; after that, it continues in the background.
pub(super) async fn within<T: Send + 'static>(
    limit: Duration,
    remote: &str,
    work: impl FnOnce() -> Result<T, RemoteError> + Send + 'static,
) -> Result<T, RemoteError> {
    match tokio::time::timeout(limit + Duration::from_millis(100), blocking(work)).await {
        Ok(done) => done,
        Err(_) => Err(RemoteError::new(remote, Condition::Unreachable, format!("no answer within {limit:?}"))),
    }
}

impl LeaseRenewer {
    /// Renews after `pause`, and then regularly, until `stop`, or until another server has the lease.
    pub(super) async fn run(&mut self, mut pause: Duration, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(pause) => {}
            }
            match self.renew().await {
                Ok(next) => pause = next,
                Err(Lost) => return,
            }
        }
    }

    /// Renews once; returns the delay until the next renewal.
    async fn renew(&mut self) -> Result<Duration, Lost> {
        let (duration, started) = (self.record.duration, Moment::now());
        let renewed = match self.settle().await? {
            Ok(()) => self.send().await,
            Err(error) => Err(error),
        };
        let was_closed = self.open();
        match renewed {
            Ok(()) => {
                self.shared.renewed(was_closed);
                Ok(renewal(duration).saturating_sub(Moment::now().since(started)))
            }
            Err(error) => {
                self.shared.failed(&error);
                Ok(retry(duration))
            }
        }
    }

    /// Reads the reference if a renewal is in doubt, to learn whether the lease is still ours.
    async fn settle(&mut self) -> Result<Result<(), RemoteError>, Lost> {
        if !self.holding.is_in_doubt() {
            return Ok(Ok(()));
        }
        let (upstream, limit) = (self.upstream.clone(), limit(self.record.duration));
        let name = reference(&upstream.config.data_reference);
        let found = within(limit, &self.upstream.remote.name, move || upstream.find([&name], limit)).await;
        match found.map(|[found]| (found, self.holding.finds(found))) {
            Ok((_, Found::Ours)) => Ok(Ok(())),
            Ok((found, Found::Others)) => {
                // Before the lookup of the new holder, which takes time.
                self.shared.gate.close_for_good();
                self.lose(found).await;
                Err(Lost)
            }
            Err(error) => Ok(Err(error)),
        }
    }

    async fn send(&mut self) -> Result<(), RemoteError> {
        let (upstream, record) = (self.upstream.clone(), self.record.clone());
        let mut chain = std::mem::take(&mut self.chain);
        let (mark, confirmed) = (self.mark.clone(), self.holding.confirmed());
        let prepared = blocking(move || {
            let next = chain.next(&upstream, &record);
            if let Ok(next) = &next {
                mark.write(Some(confirmed), *next);
            }
            (next, chain)
        });
        let (next, chain) = prepared.await;
        self.chain = chain;
        let next = next.map_err(|error| self.failed(&describe(&error)))?;
        self.holding.sends(next, Moment::now());
        self.move_to(next).await?;
        self.holding.has(next);
        Ok(())
    }

    async fn move_to(&self, next: Oid) -> Result<(), RemoteError> {
        let (upstream, limit) = (self.upstream.clone(), limit(self.record.duration));
        let update = (reference(&upstream.config.data_reference), next, Some(self.holding.confirmed()));
        within(limit, &self.upstream.remote.name, move || upstream.push(vec![update], limit)).await
    }

    fn failed(&self, problem: &str) -> RemoteError {
        self.upstream.failed(Condition::Failed, &problem)
    }

    /// Extends the fence; returns whether it was closed.
    fn open(&self) -> bool {
        let was_closed = self.shared.gate.open_until(self.holding.until());
        if was_closed {
            self.shared.reopened.send_modify(|times| *times += 1);
        }
        was_closed
    }

    async fn lose(&self, found: Option<Oid>) {
        let (upstream, limit) = (self.upstream.clone(), limit(self.record.duration));
        let name = reference(&upstream.config.data_reference);
        let read = within(limit, &self.upstream.remote.name, move || {
            let Some(oid) = found else { return Ok(None) };
            upstream.bring(&[(&name, found)])?;
            Ok(Record::read(&upstream.here()?, oid).ok())
        });
        let by = match (found, read.await) {
            (None, _) => "its reference was deleted".to_owned(),
            (_, Ok(Some(record))) => format!("{} has it in epoch {}", record.host, record.epoch),
            _ => "another writer holds it".to_owned(),
        };
        self.shared.lose(by);
    }

    /// Hands the lease over, so that other servers need not wait until it expires. Returns `false` if another server has it.
    pub(super) async fn release(&mut self) -> Result<bool, RemoteError> {
        self.shared.gate.close_for_good();
        let record = Record { is_held: false, ..self.record.clone() };
        let upstream = self.upstream.clone();
        let last = blocking(move || chain::last(&upstream, &record)).await;
        let last = last.map_err(|error| self.failed(&describe(&error)))?;
        let mut attempts = 0;
        loop {
            match self.settle().await {
                Err(Lost) => return Ok(false),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(())) => {}
            }
            attempts += 1;
            self.holding.sends(last, Moment::now());
            match self.move_to(last).await {
                Ok(()) => return Ok(true),
                Err(error) if attempts == 2 => return Err(error),
                // A renewal in flight may have arrived in between.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_after_refusals_get_rarer() {
        let rests: Vec<_> = (0..9).map(|refusals| rest(Duration::from_secs(3), refusals).as_millis()).collect();
        assert_eq!(rests, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
        assert_eq!(rest(Duration::from_secs(3), u32::MAX), Duration::from_secs(15));
    }
}
