//! The kernel's accounting of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Resources used by a process since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time, user and system, all threads; in steps of 10 ms.
    pub cpu: Duration,
    /// Bytes written to disk on behalf of the process, in whole pages (`write_bytes`).
    pub written: u64,
}

/// Returns the usage of a process; `pid` must be a process ID, 0 does not mean `self`.
pub fn usage(pid: u32) -> Result<Usage> {
    Ok(Usage { cpu: cpu(pid)?, written: written(pid)? })
}

/// Processor time that all processes and the kernel have used since boot, and that a hypervisor has taken.
pub fn machine_cpu() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = busy_ticks(&stat).context("cannot parse /proc/stat")?;
    Ok(duration(ticks))
}

/// All ticks except idle and I/O wait.
fn busy_ticks(stat: &str) -> Option<u64> {
    // user nice system idle iowait irq softirq steal; later ones are included in user.
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks = fields.map(|field| field.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
    (ticks.len() == 8).then(|| ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
}

fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Processor time of a process.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = read(pid, "stat")?;
    ticks(&stat).map(duration).with_context(|| format!("cannot parse /proc/{pid}/stat"))
}

/// Whether a child of this process has exited, even if it has not been reaped.
pub fn ended(pid: u32) -> bool {
    read(pid, "stat").map_or(true, |stat| state(&stat) == Some('Z'))
}

fn state(stat: &str) -> Option<char> {
    // The second field is the program's name in parentheses, which may contain spaces.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// User and system ticks of a `stat` line.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn written(pid: u32) -> Result<u64> {
    let io = read(pid, "io")?;
    field(&io, "write_bytes:").with_context(|| format!("/proc/{pid}/io has no write_bytes"))
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Anonymous memory: heap, stacks, buffers.
    pub anonymous: u64,
    /// Pages of mapped files, such as its program and a database.
    pub file: u64,
}

/// Returns the current resident memory of a process.
pub fn resident(pid: u32) -> Result<Resident> {
    let status = read(pid, "status")?;
    let figure = |name: &str| {
        field(&status, name).map(|kib| kib * 1024).with_context(|| format!("/proc/{pid}/status has no {name}"))
    };
    Ok(Resident { anonymous: figure("RssAnon:")?, file: figure("RssFile:")? })
}

/// Returns the current proportional set size of a process, in bytes: its resident memory, of which pages that it shares with other
/// processes count in part. Takes time for each mapping.
pub fn proportional(pid: u32) -> Result<u64> {
    let rollup = read(pid, "smaps_rollup")?;
    field(&rollup, "Pss:").map(|kib| kib * 1024).with_context(|| format!("/proc/{pid}/smaps_rollup has no Pss"))
}

/// The processes that a process has started, and those that they have started.
pub fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let of: Vec<(u32, u32)> = all.filter_map(|child| Some((child, parent(child)?))).collect();
    let mut found = vec![pid];
    for at in 0.. {
        let Some(parent) = found.get(at).copied() else { break };
        found.extend(of.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
    }
    found.split_off(1)
}

/// Peak resident memory since the process started or [`reset_peak_memory`], in bytes.
pub fn peak_memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    field(&status, "VmHWM:").map(|kib| kib * 1024).with_context(|| format!("/proc/{pid}/status has no VmHWM"))
}

/// Resets [`peak_memory`] to the memory in use now.
pub fn reset_peak_memory(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has the server exited?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_spaces_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(state(stat), Some('S'));
        assert_eq!(ticks("42 (cut"), None);
    }

    #[test]
    fn idling_and_waiting_are_not_busy() {
        let stat = "cpu  10 20 30 4000 5000 1 2 3 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(66));
        assert_eq!(busy_ticks("cpu 1 2\n"), None);
    }

    #[test]
    fn the_own_process_has_usage_and_memory() {
        let own = std::process::id();
        assert!(usage(own).is_ok());
        let resident = resident(own).unwrap();
        assert!(resident.anonymous > 0 && resident.file > 0, "{resident:?}");
        assert!(proportional(own).unwrap() > 0);
        assert!(peak_memory(own).unwrap() > 0);
    }
}
