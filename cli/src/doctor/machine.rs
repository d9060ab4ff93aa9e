//! The limits, the memory and the clock of this machine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::check::{Area, Check, bytes};

const MIB: u64 = 1 << 20;
/// Open files of one process. kube-apiserver and gitcd raise their limit to the hard one, and need one for each connection.
const OPEN_FILES: u64 = 4096;
/// Free inotify instances of a user. The processes of a star have about twenty.
const INSTANCES: u64 = 32;
/// Free inotify watches of a user: gitcd watches each folder of references.
const WATCHES: u64 = 1024;
/// What the processes of a star take after the start.
const CLUSTER_BYTES: u64 = 875 * MIB;
/// With less, the system is about to kill processes.
const RESERVE_BYTES: u64 = 128 * MIB;
/// How long `timedatectl` may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn check(is_running: bool) -> Vec<Check> {
    let [used_instances, used_watches] = used();
    let limit = |name: &str| number(&Path::new("/proc/sys/fs/inotify").join(name));
    vec![
        open_files(getrlimit(Resource::Nofile).maximum),
        inotify("inotify-instances", limit("max_user_instances"), used_instances, INSTANCES),
        inotify("inotify-watches", limit("max_user_watches"), used_watches, WATCHES),
        memory(available(), is_running),
        clock(is_synchronized().await),
    ]
}

fn open_files(maximum: Option<u64>) -> Check {
    const NAME: &str = "open-files";
    match maximum {
        None => Check::ok(Area::Machine, NAME, "no limit of open files"),
        Some(maximum) if maximum >= OPEN_FILES => {
            Check::ok(Area::Machine, NAME, format!("hard limit of {maximum} open files for each process"))
        }
        Some(maximum) => {
            let detail = format!("hard limit of {maximum} open files for each process; {OPEN_FILES} are recommended");
            let remedy =
                "raise it in /etc/security/limits.conf (`hard nofile`), or with LimitNOFILE= of a systemd unit";
            Check::warning(Area::Machine, NAME, detail, remedy)
        }
    }
}

fn inotify(name: &'static str, limit: Option<u64>, used: u64, wanted: u64) -> Check {
    let Some(limit) = limit else { return Check::skipped(Area::Machine, name, "this system has no inotify") };
    let detail = format!("{used} of {limit} are used by your processes");
    if limit.saturating_sub(used) >= wanted {
        return Check::ok(Area::Machine, name, detail);
    }
    let option = if name == "inotify-instances" { "max_user_instances" } else { "max_user_watches" };
    let remedy = format!(
        "raise it: `sysctl fs.inotify.{option}={}`, and in /etc/sysctl.d for the next boot; without notifications, gitcd polls \
         references",
        (limit * 4).max(1024)
    );
    Check::warning(Area::Machine, name, format!("{detail}; {wanted} should be free"), remedy)
}

fn memory(available: Option<u64>, is_running: bool) -> Check {
    const NAME: &str = "memory";
    let Some(available) = available else {
        return Check::skipped(Area::Machine, NAME, "the available memory is unknown");
    };
    let detail = format!("{} are available", bytes(available));
    let (wanted, what) = if is_running {
        (RESERVE_BYTES, "are a reserve")
    } else {
        (CLUSTER_BYTES, "are what a headless cluster takes after its start")
    };
    if available >= wanted {
        return Check::ok(Area::Machine, NAME, detail);
    }
    let detail = format!("{detail}; {} {what}", bytes(wanted));
    Check::warning(
        Area::Machine,
        NAME,
        detail,
        "stop other programs, or add memory: the system kills processes without it",
    )
}

fn clock(is_synchronized: Option<bool>) -> Check {
    const NAME: &str = "clock";
    match is_synchronized {
        Some(true) => Check::ok(Area::Machine, NAME, "synchronized"),
        Some(false) => Check::warning(
            Area::Machine,
            NAME,
            "not synchronized: the times of commits and certificates may be wrong",
            "enable time synchronization, such as `timedatectl set-ntp true`",
        ),
        None => Check::skipped(Area::Machine, NAME, "timedatectl does not report whether it is synchronized"),
    }
}

/// Returns the bytes that processes can still get: of the machine, and of the control groups of this process.
fn available() -> Option<u64> {
    let of_machine = in_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let folder = root.join(group);
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let left = groups.filter_map(|folder| {
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
        let used = number(&folder.join("memory.current"))?.saturating_sub(cached.unwrap_or(0));
        Some(number(&folder.join("memory.max"))?.saturating_sub(used))
    });
    left.chain([of_machine]).min()
}

fn in_meminfo(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    kib.map(|kib: u64| kib * 1024)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the inotify instances and watches of this user's processes, as far as they can be read.
fn used() -> [u64; 2] {
    let own = rustix::process::geteuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut used = [0, 0];
    for process in processes.filter(|process| process.metadata().is_ok_and(|metadata| metadata.uid() == own)) {
        for file in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let is_inotify = fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:inotify");
            if is_inotify {
                let watches = fs::read_to_string(process.join("fdinfo").join(file.file_name())).unwrap_or_default();
                used[0] += 1;
                used[1] += watches.lines().filter(|line| line.starts_with("inotify ")).count() as u64;
            }
        }
    }
    used
}

/// Asks systemd, which asks the kernel; `None` if that is not possible.
async fn is_synchronized() -> Option<bool> {
    let mut command = tokio::process::Command::new("timedatectl");
    let command = command.args(["show", "--property=NTPSynchronized", "--value"]).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).output()).await.ok()?.ok()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn few_open_files_are_a_warning() {
        assert_eq!(open_files(None).status, Status::Ok);
        assert_eq!(open_files(Some(OPEN_FILES)).status, Status::Ok);
        let few = open_files(Some(1024));
        assert!(few.status == Status::Warning && few.detail.contains("hard limit of 1024"), "{few:?}");
        assert!(few.remedy.unwrap().contains("LimitNOFILE="));
    }

    #[test]
    fn used_up_notifications_are_a_warning_with_the_command() {
        assert_eq!(inotify("inotify-instances", Some(128), 96, 32).status, Status::Ok);
        let short = inotify("inotify-instances", Some(128), 97, 32);
        assert!(short.status == Status::Warning && short.detail.starts_with("97 of 128 are used"), "{short:?}");
        assert!(short.remedy.unwrap().contains("sysctl fs.inotify.max_user_instances=1024"));
        assert!(inotify("inotify-watches", Some(8192), 8000, 1024).remedy.unwrap().contains("max_user_watches=32768"));
        assert_eq!(inotify("inotify-watches", None, 0, 1024).status, Status::Skipped);
    }

    #[test]
    fn memory_must_suffice_for_a_start_and_then_for_a_reserve() {
        assert_eq!(memory(Some(CLUSTER_BYTES), false).status, Status::Ok);
        let little = memory(Some(512 * MIB), false);
        assert!(
            little.status == Status::Warning && little.detail.contains("512 MiB are available; 875 MiB"),
            "{little:?}"
        );
        assert_eq!(memory(Some(512 * MIB), true).status, Status::Ok);
        assert_eq!(memory(Some(64 * MIB), true).status, Status::Warning);
        assert_eq!(memory(None, true).status, Status::Skipped);
        assert_eq!(in_meminfo("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 * MIB));
    }

    #[test]
    fn a_clock_that_is_not_synchronized_is_a_warning() {
        assert_eq!(
            [Some(true), Some(false), None].map(|it| clock(it).status),
            [Status::Ok, Status::Warning, Status::Skipped]
        );
    }

    #[tokio::test]
    async fn this_machine_can_be_measured() {
        // An instance of this process is counted.
        let _instance = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        assert!(used()[0] >= 1);
        let checks = check(false).await;
        assert_eq!(checks.len(), 5);
        assert!(checks.iter().all(|check| check.status != Status::Failure), "{checks:?}");
    }
}
