//! Limits of the memory and time that pushes and fetches may use, whatever clients send.
//!
//! A few hundred kilobytes can inflate to gigabytes, so neither the size of a request nor the number of requests bounds what it
//! costs. Programs get a limit of memory and of processor time from the kernel, and all pushes together have one [`Budget`].

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use gitcd_core::program::Running;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit, setpriority_process};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

const MIB: u64 = 1 << 20;
/// Memory of such a program for each object; `git index-pack --strict` needs about 180 bytes.
const OF_AN_OBJECT: u64 = 256;

/// The niceness of a program that works on a push or a large negotiation: the store answers its clients first. On a busy machine,
/// it gets about a tenth of a processor, as [`WALL_FACTOR`] allows for.
const NICE: i32 = 10;

/// Received bytes for which a program gets another second of processor time.
const BYTES_A_SECOND: u64 = MIB;
/// How much longer than its processor time a program may take, since others may need the processors or the disk.
const WALL_FACTOR: u32 = 10;

/// Settings that keep the memory of `git index-pack` small: large blobs are streamed, and caches are limited.
pub(super) const UNPACK_SETTINGS: [&str; 6] =
    ["-c", "core.bigFileThreshold=8m", "-c", "core.deltaBaseCacheLimit=32m", "-c", "pack.threads=2"];
/// The same for `git pack-objects`, which fetches run.
pub(super) const FETCH_SETTINGS: [&str; 6] =
    ["-c", "core.bigFileThreshold=8m", "-c", "pack.windowMemory=64m", "-c", "pack.threads=4"];

/// The memory of all pushes together.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    bytes: u64,
}

impl Budget {
    /// Returns a budget of this size.
    pub(super) fn new(bytes: u64) -> Self {
        let permits = (bytes / MIB).min(u64::from(u32::MAX)).min(Semaphore::MAX_PERMITS as u64);
        Self { free: Arc::new(Semaphore::new(permits as usize)), bytes: permits * MIB }
    }

    /// Waits until this much memory is free for a push. Returns `None` if it never can be.
    ///
    /// A push holds at most one part of the budget at a time, so pushes cannot block each other.
    ///
    /// # Errors
    /// [`Problem::Busy`] after `patience`.
    pub(super) async fn take(&self, bytes: u64, patience: Duration) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        if bytes > self.bytes {
            return Ok(None);
        }
        let taken =
            tokio::time::timeout(patience, self.free.clone().acquire_many_owned(bytes.div_ceil(MIB) as u32)).await;
        taken.ok().and_then(Result::ok).map(Some).ok_or(Problem::Busy)
    }
}

/// Bytes at the beginning of a pack that [`of_pack`] needs.
pub(super) const PACK_HEADER_BYTES: usize = 12;

/// Returns the memory that Git may use to unpack a pack, given its beginning: its header has the number of objects. `memory` is
/// that for a pack without objects.
pub(super) fn of_pack(beginning: &[u8], memory: u64) -> u64 {
    let count = beginning.strip_prefix(b"PACK").and_then(|rest| rest.get(4..8)).and_then(|count| count.try_into().ok());
    memory + OF_AN_OBJECT * u64::from(count.map_or(0, u32::from_be_bytes))
}

/// The limits of a running program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    /// `None` once it has exited.
    pid: Option<Pid>,
    cpu: Duration,
    /// The part of it that does not depend on the size of the push.
    base: Duration,
}

impl Quota {
    /// Limits a program that works on a push, before it has read any of it. Its processor time is `base`, and that for `bytes`.
    pub(super) fn of_push(running: &mut Running, memory: u64, (base, bytes): (Duration, u64)) -> io::Result<Self> {
        let mut quota = Self { pid: pid(running), cpu: Duration::ZERO, base };
        quota.be_nice()?;
        quota.limit(Resource::Data, memory)?;
        quota.received(bytes)?;
        Ok(quota)
    }

    /// Limits the memory of a program that answers a fetch, before it has read the request; and its priority, if that is large.
    pub(super) fn of_fetch(running: &mut Running, memory: u64, is_large: bool) -> io::Result<()> {
        let quota = Self { pid: pid(running), cpu: Duration::ZERO, base: Duration::ZERO };
        if is_large {
            quota.be_nice()?;
        }
        quota.limit(Resource::Data, memory)
    }

    fn be_nice(&self) -> io::Result<()> {
        self.pid.map_or(Ok(()), |pid| if_running(setpriority_process(Some(pid), NICE)))
    }

    /// Extends the processor time to that for so many bytes of a pack.
    pub(super) fn received(&mut self, bytes: u64) -> io::Result<()> {
        let cpu = self.base + Duration::from_secs(bytes / BYTES_A_SECOND);
        if cpu == self.cpu {
            return Ok(());
        }
        self.cpu = cpu;
        self.limit(Resource::Cpu, cpu.as_secs())
    }

    /// Returns how long the program may take for what it has, on a busy machine.
    pub(super) fn patience(&self) -> Duration {
        self.cpu * WALL_FACTOR
    }

    fn limit(&self, resource: Resource, most: u64) -> io::Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        // The program has the limits of this process, which it cannot raise.
        let maximum = getrlimit(resource).maximum;
        let current = Some(maximum.map_or(most, |maximum| maximum.min(most)));
        // Of the time, the soft limit ends the program; the hard one must stay, or the time could not be extended.
        let maximum = if resource == Resource::Cpu { maximum } else { current };
        if_running(prlimit(Some(pid), resource, Rlimit { current, maximum }))
    }
}

/// A program that has exited needs no limits.
fn if_running<T>(limited: rustix::io::Result<T>) -> io::Result<()> {
    match limited.map(drop) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        limited => Ok(limited?),
    }
}

fn pid(running: &mut Running) -> Option<Pid> {
    running.child().id().and_then(|id| Pid::from_raw(id.cast_signed()))
}

/// Returns why a program failed, if it was for lack of memory or time.
pub(super) fn exhausted(status: ExitStatus, said: &str) -> Option<&'static str> {
    const MEMORY: &str = "the push needs more memory than this host allows for its size";
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return Some(LATE);
    }
    let signs = ["ut of memory", "unable to create thread", "annot allocate memory"];
    (!status.success() && signs.iter().any(|sign| said.contains(sign))).then_some(MEMORY)
}

/// Why a program was stopped.
pub(super) const LATE: &str = "the push takes more time than this host allows for its size";

#[cfg(test)]
mod tests {
    use super::*;

    const UNPACK: u64 = 256 * MIB;
    const ALL_PUSHES: u64 = 1024 * MIB;

    #[test]
    fn a_pack_gets_memory_for_the_objects_that_it_announces() {
        let of_pack = |beginning: &[u8]| of_pack(beginning, UNPACK);
        assert_eq!(of_pack(b"PACK\0\0\0\x02\0\0\x01\0rest"), UNPACK + 256 * OF_AN_OBJECT);
        assert!(of_pack(b"PACK\0\0\0\x02\xff\xff\xff\xff") > ALL_PUSHES);
        for other in [&b""[..], b"PACK", b"PACK\0\0\0\x02\0\0\x01", b"KCAP\0\0\0\x02\0\0\x01\0"] {
            assert_eq!(of_pack(other), UNPACK);
        }
    }

    #[tokio::test]
    async fn the_budget_is_for_all_pushes_together() {
        let (budget, now) = (Budget::new(ALL_PUSHES), Duration::ZERO);
        assert!(budget.take(ALL_PUSHES + 1, now).await.unwrap().is_none());
        let all = budget.take(ALL_PUSHES, now).await.unwrap();
        assert!(matches!(budget.take(1, now).await, Err(Problem::Busy)));
        drop(all);
        let parts = [budget.take(ALL_PUSHES / 2, now).await.unwrap(), budget.take(ALL_PUSHES / 2, now).await.unwrap()];
        assert!(parts.iter().all(Option::is_some) && budget.take(1, now).await.is_err());
    }
}
