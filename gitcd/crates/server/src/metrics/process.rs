//! Metrics of the process, as in Prometheus client libraries on Linux.

use std::fs;

/// Values from `/proc`; `None` if one cannot be read.
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) virtual_bytes: Option<f64>,
    pub(super) start_seconds: Option<f64>,
    pub(super) open_fds: Option<f64>,
    pub(super) max_fds: Option<f64>,
    /// Of the network namespace, as in those libraries.
    pub(super) received_bytes: Option<f64>,
    pub(super) sent_bytes: Option<f64>,
    pub(super) virtual_max_bytes: Option<f64>,
}

impl Process {
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field is the name in parentheses, which may have spaces in it.
        let fields: Vec<f64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0.0)).collect())
            .unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        // Field numbers of proc(5); the first three are cut off.
        let field = |number: usize| fields.get(number - 4).copied();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let network = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
        Self {
            cpu_seconds: field(14).zip(field(15)).map(|(user, system)| (user + system) / ticks),
            resident_bytes: field(24).map(|pages| pages * rustix::param::page_size() as f64),
            virtual_bytes: field(23),
            start_seconds: field(22).zip(boot).map(|(start, boot)| boot + start / ticks),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64),
            max_fds: file_descriptor_limit().map(|limit| limit as f64),
            received_bytes: octets(&network, "InOctets"),
            sent_bytes: octets(&network, "OutOctets"),
            // Unlimited is reported as the largest number.
            virtual_max_bytes: Some(limit("Max address space").unwrap_or(u64::MAX) as f64),
        }
    }
}

/// Returns a number from the `IpExt` table: a line of names, a line of numbers.
fn octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|found| found == name)?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

/// Returns how many files this process may have open.
pub(crate) fn file_descriptor_limit() -> Option<u64> {
    limit("Max open files")
}

/// Returns a soft limit of this process by its name in `/proc`; `None` if unlimited.
fn limit(name: &str) -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_figures_of_this_process_are_plausible() {
        let process = Process::now();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 86_400.0..=now + 1.0).contains(&process.start_seconds.unwrap()));
        assert!((1e5..1e11).contains(&process.resident_bytes.unwrap()));
        assert!(process.virtual_bytes.unwrap() >= process.resident_bytes.unwrap());
        assert!(process.cpu_seconds.unwrap() < 86_400.0);
        assert!(process.received_bytes.is_some() && process.sent_bytes.is_some());
        assert!(process.open_fds.unwrap() >= 3.0 && process.max_fds.unwrap() >= process.open_fds.unwrap());
    }
}
