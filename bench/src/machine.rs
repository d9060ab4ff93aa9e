//! Facts about the machine, without which a measurement means nothing.

use std::fs;
use std::path::Path;
use std::thread;

use serde::Serialize;

use crate::table::mebibytes;

/// The machine, as far as it affects measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Usable cores.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Type of the file system that holds the data folders.
    pub file_system: String,
    /// Load average over the last minute at the start: other work distorts measurements.
    pub load_at_start: String,
}

impl Machine {
    /// Examines the machine; unavailable facts are `unknown`.
    pub fn look(data: &Path) -> Self {
        let line = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let found = text.lines().find(|line| line.starts_with(name));
            found.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let memory = line("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024);
        let first = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            text.split_whitespace().next().map(str::to_owned)
        };
        let unknown = || "unknown".to_owned();
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            memory,
            kernel: first("/proc/sys/kernel/osrelease").map_or_else(unknown, |release| format!("Linux {release}")),
            file_system: file_system(data).unwrap_or_else(unknown),
            load_at_start: first("/proc/loadavg").unwrap_or_else(unknown),
        }
    }

    /// One line for the report.
    pub fn describe(&self) -> String {
        format!(
            "- Machine: {} cores ({}), {}, {}, data on {}, load average {} at the start",
            self.cores,
            self.processor,
            mebibytes(self.memory),
            self.kernel,
            self.file_system,
            self.load_at_start,
        )
    }

    /// One line for the report: the share of the cores that other work used during these seconds of load. With a high share,
    /// results are too low.
    pub fn noise(&self, other_cpu_seconds: f64, load_seconds: f64) -> String {
        let share = other_cpu_seconds / (load_seconds * self.cores as f64).max(f64::EPSILON) * 100.0;
        format!("- Noise: other programs and the kernel's threads took {share:.0} % of the cores during the load")
    }

    /// Whether the data folders are in memory, where an fsync costs nothing.
    pub fn in_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs")
    }
}

/// The type of the mount with the longest path that contains this one.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_owned())
}
