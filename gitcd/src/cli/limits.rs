//! Flags for limits on the resources that clients use, and their bounds.

use std::time::Duration;

use gitcd_core::descriptors;
use gitcd_host::Limits;
use gitcd_net::listener;
use gitcd_server::config::ConfigError;

use super::duration;

const MIB: u64 = 1 << 20;
/// Least memory in which `git` can work.
const MIN_MEMORY_BYTES: u64 = 64 * MIB;
/// Most memory that can be configured, in bytes: 1 TiB.
const MAX_MEMORY_BYTES: u64 = 1 << 40;

fn wrong(flag: &'static str, value: &dyn ToString, problem: impl Into<String>) -> ConfigError {
    ConfigError::Value { flag, value: value.to_string(), problem: problem.into() }
}

/// Returns the limits of connections for a process that may open this many files; `None` is the default. `flags` are their names.
fn connections(
    flags: [&'static str; 2],
    [connections, per_address]: [Option<usize>; 2],
    descriptors: u64,
) -> Result<listener::Limits, ConfigError> {
    let default = listener::Limits::of_descriptors(descriptors);
    // A quarter of the files is for packs, references and the journal.
    let most = usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX).max(1);
    for (flag, value) in flags.into_iter().zip([connections, per_address]) {
        match value {
            Some(0) => return Err(wrong(flag, &0, "no client could connect; it must be at least 1")),
            Some(value) if value > most => {
                let problem = format!(
                    "this process may open {descriptors} files, of which {most} for connections; raise the limit of open files \
                     (ulimit -n, LimitNOFILE=), or give at most {most}"
                );
                return Err(wrong(flag, &value, problem));
            }
            _ => {}
        }
    }
    let connections = connections.unwrap_or_else(|| default.connections.max(per_address.unwrap_or_default()));
    if let Some(per_address) = per_address.filter(|per_address| *per_address > connections) {
        let problem = format!("it is more than --{} allows for all addresses, {connections}", flags[0]);
        return Err(wrong(flags[1], &per_address, problem));
    }
    let per_address = per_address.unwrap_or_else(|| default.per_address.min(connections));
    Ok(listener::Limits { connections, per_address })
}

/// The name of a flag; with the prefix `host-` in the command `serve`, whose Git host is beside the branch.
macro_rules! flag {
    ($name:literal) => {
        if BESIDE { concat!("host-", $name) } else { $name }
    };
}

/// The environment variable of a flag.
macro_rules! variable {
    ($name:literal) => {
        if BESIDE { concat!("GITCD_HOST_", $name) } else { concat!("GITCD_", $name) }
    };
}

/// Limits on connections.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Connections<const BESIDE: bool = false> {
    /// Most open connections of a listener; at the limit, new clients wait
    /// [default: half of the files that the process may open, at most 8192]
    #[arg(
        long = flag!("max-connections"), id = flag!("max-connections"),
        env = variable!("MAX_CONNECTIONS"), value_name = "N"
    )]
    max_connections: Option<usize>,
    /// Most open connections from one address to a listener; further ones are closed
    /// [default: a third of the files that the process may open, at most 4096]
    #[arg(
        long = flag!("max-connections-per-address"), id = flag!("max-connections-per-address"),
        env = variable!("MAX_CONNECTIONS_PER_ADDRESS"), value_name = "N"
    )]
    max_connections_per_address: Option<usize>,
}

impl<const BESIDE: bool> Connections<BESIDE> {
    /// Returns the limits, within the bounds of this process.
    pub(super) fn limits(&self) -> Result<listener::Limits, ConfigError> {
        let flags = [flag!("max-connections"), flag!("max-connections-per-address")];
        connections(flags, [self.max_connections, self.max_connections_per_address], descriptors::limit())
    }
}

/// Limits of a Git host.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct HostLimits<const BESIDE: bool = false> {
    #[command(flatten)]
    connections: Connections<BESIDE>,
    /// Largest pack of a push, like Git's receive.maxInputSize
    #[arg(
        long = flag!("max-pack-bytes"), id = flag!("max-pack-bytes"),
        env = variable!("MAX_PACK_BYTES"), default_value_t = Limits::default().max_pack_bytes, value_name = "BYTES"
    )]
    max_pack_bytes: u64,
    /// Memory of all pushes together, from 96 MiB; a push that finds too little waits, up to the idle timeout
    #[arg(
        long = flag!("max-pushes-memory-bytes"), id = flag!("max-pushes-memory-bytes"),
        env = variable!("MAX_PUSHES_MEMORY_BYTES"), default_value_t = Limits::default().pushes_memory_bytes, value_name = "BYTES"
    )]
    max_pushes_memory_bytes: u64,
    /// Memory of a Git program that reads a push, from 64 MiB, besides 256 bytes for each of its objects
    #[arg(
        long = flag!("max-push-memory-bytes"), id = flag!("max-push-memory-bytes"),
        env = variable!("MAX_PUSH_MEMORY_BYTES"), default_value_t = Limits::default().push_memory_bytes, value_name = "BYTES"
    )]
    max_push_memory_bytes: u64,
    /// Processor time of a Git program that reads a push, besides a second for each MiB; it may run ten times as long
    #[arg(
        long = flag!("max-push-cpu-time"), id = flag!("max-push-cpu-time"),
        env = variable!("MAX_PUSH_CPU_TIME"), default_value = "30s", value_parser = duration::parse, value_name = "DURATION"
    )]
    max_push_cpu_time: Duration,
    /// Memory of a Git program that answers a fetch, from 64 MiB
    #[arg(
        long = flag!("max-fetch-memory-bytes"), id = flag!("max-fetch-memory-bytes"),
        env = variable!("MAX_FETCH_MEMORY_BYTES"), default_value_t = Limits::default().fetch_memory_bytes, value_name = "BYTES"
    )]
    max_fetch_memory_bytes: u64,
    /// Concurrent fetches and pushes
    #[arg(
        long = flag!("max-requests"), id = flag!("max-requests"),
        env = variable!("MAX_REQUESTS"), default_value_t = Limits::default().max_requests, value_name = "N"
    )]
    max_requests: usize,
    /// Concurrent clients that follow references
    #[arg(
        long = flag!("max-followers"), id = flag!("max-followers"),
        env = variable!("MAX_FOLLOWERS"), default_value_t = Limits::default().max_followers, value_name = "N"
    )]
    max_followers: usize,
    /// How long a client may stall in the middle of a request
    #[arg(
        long = flag!("idle-timeout"), id = flag!("idle-timeout"),
        env = variable!("IDLE_TIMEOUT"), default_value = "2m", value_parser = duration::parse, value_name = "DURATION"
    )]
    idle_timeout: Duration,
}

impl<const BESIDE: bool> HostLimits<BESIDE> {
    /// Returns the limits, if they are within their bounds.
    pub(super) fn limits(&self) -> Result<Limits, ConfigError> {
        let limits = Limits {
            max_pack_bytes: self.max_pack_bytes,
            max_requests: self.max_requests,
            max_followers: self.max_followers,
            idle: self.idle_timeout.max(Duration::from_secs(1)),
            pushes_memory_bytes: self.max_pushes_memory_bytes,
            push_memory_bytes: self.max_push_memory_bytes,
            push_cpu: self.max_push_cpu_time,
            fetch_memory_bytes: self.max_fetch_memory_bytes,
            connections: self.connections.limits()?,
        };
        if limits.max_pack_bytes == 0 {
            return Err(wrong(flag!("max-pack-bytes"), &0, "no client could push; it must be at least 1"));
        }
        within(flag!("max-push-memory-bytes"), limits.push_memory_bytes, MIN_MEMORY_BYTES)?;
        within(flag!("max-fetch-memory-bytes"), limits.fetch_memory_bytes, MIN_MEMORY_BYTES)?;
        let (pushes, most) = (flag!("max-pushes-memory-bytes"), limits.pushes_memory_bytes);
        within(pushes, most, gitcd_host::MIN_PUSHES_MEMORY_BYTES)?;
        if limits.push_memory_bytes > most {
            let problem = format!("it must not exceed the total for all pushes, --{pushes}={most}");
            return Err(wrong(flag!("max-push-memory-bytes"), &limits.push_memory_bytes, problem));
        }
        if limits.push_cpu < Duration::from_secs(1) {
            return Err(wrong(flag!("max-push-cpu-time"), &format!("{:?}", limits.push_cpu), "it must be at least 1s"));
        }
        Ok(limits)
    }
}

/// Checks a limit on memory.
fn within(flag: &'static str, value: u64, least: u64) -> Result<(), ConfigError> {
    if value < least {
        return Err(wrong(flag, &value, format!("it must be at least {least} ({} MiB)", least / MIB)));
    }
    if value > MAX_MEMORY_BYTES {
        return Err(wrong(flag, &value, format!("it must be at most {MAX_MEMORY_BYTES} (1 TiB)")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [&str; 2] = ["max-connections", "max-connections-per-address"];

    #[test]
    fn limits_of_connections_stay_within_the_files_that_the_process_may_open() {
        let limits = |connections, per_address| listener::Limits { connections, per_address };
        for (given, expected) in [
            ([None, None], limits(512, 341)),
            ([Some(100), None], limits(100, 100)),
            ([Some(768), Some(768)], limits(768, 768)),
            ([None, Some(20)], limits(512, 20)),
            ([None, Some(600)], limits(600, 600)),
        ] {
            assert_eq!(connections(FLAGS, given, 1024).unwrap(), expected, "{given:?}");
        }
        for (given, flag, words) in [
            ([Some(0), None], FLAGS[0], "at least 1"),
            ([None, Some(0)], FLAGS[1], "at least 1"),
            ([Some(769), None], FLAGS[0], "may open 1024 files, of which 768 for connections"),
            ([None, Some(9999)], FLAGS[1], "LimitNOFILE="),
            ([Some(10), Some(11)], FLAGS[1], "more than --max-connections allows for all addresses, 10"),
        ] {
            let refused = connections(FLAGS, given, 1024).unwrap_err();
            assert_eq!(refused.flag(), flag);
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        limits: HostLimits,
        #[command(flatten)]
        beside: HostLimits<true>,
    }

    #[test]
    fn limits_of_a_host_have_bounds() {
        let read = |line: &[&str]| <Line as clap::Parser>::try_parse_from([&["gitcd"], line].concat()).unwrap();
        let usual = read(&[]).limits.limits().unwrap();
        let expected = Limits { connections: usual.connections, ..Limits::default() };
        assert_eq!(format!("{usual:?}"), format!("{expected:?}"));
        let given = read(&["--host-max-push-cpu-time=2m", "--host-max-pack-bytes=7"]).beside.limits().unwrap();
        assert_eq!((given.push_cpu, given.max_pack_bytes), (Duration::from_mins(2), 7));
        for (line, words) in [
            ("--max-pack-bytes=0", "at least 1"),
            ("--max-push-memory-bytes=1000", "at least 67108864 (64 MiB)"),
            ("--max-push-memory-bytes=4294967296", "--max-pushes-memory-bytes=1073741824"),
            ("--max-pushes-memory-bytes=1000", "at least 100663296 (96 MiB)"),
            ("--max-pushes-memory-bytes=9999999999999999", "at most"),
            ("--max-fetch-memory-bytes=1", "64 MiB"),
            ("--max-push-cpu-time=10ms", "at least 1s"),
        ] {
            let refused = read(&[line]).limits.limits().unwrap_err();
            assert!(line.starts_with(&format!("--{}=", refused.flag())), "{refused}");
            assert!(refused.to_string().contains(words), "{refused}");
            let beside = line.replacen("--", "--host-", 1);
            assert!(read(&[&beside]).beside.limits().unwrap_err().flag().starts_with("host-"));
        }
    }
}
