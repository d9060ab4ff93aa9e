//! The state folder and its file system.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{StatVfs, statfs, statvfs};
use trishanku::plane::Home;

use super::check::{Area, Check, bytes};

const MIB: u64 = 1 << 20;
/// Below this, gitcd is about to refuse writes.
const FULL_BYTES: u64 = 64 * MIB;
/// A repack needs as much space as the packs.
const LITTLE_BYTES: u64 = 1024 * MIB;
const FEW_INODES: u64 = 10_000;
/// Every write waits for the disk once, so a median above this is felt.
const SLOW: Duration = Duration::from_millis(10);
/// A single wait above this makes clients time out.
const STALLED: Duration = Duration::from_secs(1);
const SYNCS: usize = 20;
const SYNC_BYTES: usize = 4096;
/// Limit of the measurement, beyond which only the write in progress is awaited.
const MEASURED: Duration = Duration::from_secs(2);
/// Limit for the write in progress, too.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tolerance for file systems with coarse times.
const AHEAD: Duration = Duration::from_secs(5);
/// Files that are named in a message.
const NAMED: usize = 3;

pub(super) async fn check(home: &Home) -> Vec<Check> {
    // Before the first start, the next folder that exists has the file system.
    let Some(folder) = home.dir().ancestors().find(|folder| folder.is_dir()).map(Path::to_owned) else {
        return vec![Check::skipped(Area::Folder, "file-system", "there is no such folder")];
    };
    let mut checks = vec![statfs(&folder).map_or_else(
        |error| Check::skipped(Area::Folder, "file-system", error.to_string()),
        // The type has another width and sign on some machines.
        |found| file_system(found.f_type as u64 & 0xffff_ffff),
    )];
    match statvfs(&folder) {
        Ok(found) => checks.extend([space(&found), inodes(&found)]),
        Err(error) => checks.push(Check::skipped(Area::Folder, "space", error.to_string())),
    }
    if folder != home.dir() {
        let detail = format!("{} is created by the first start", home.dir().display());
        return [checks, vec![Check::skipped(Area::Folder, "permissions", detail)]].concat();
    }
    let measured = tokio::task::spawn_blocking(move || sync_latencies(&folder));
    let measured = match tokio::time::timeout(PATIENCE, measured).await {
        Ok(Ok(measured)) => measured,
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Ok(vec![PATIENCE]),
    };
    checks.push(sync(measured));
    if let Ok(metadata) = home.dir().metadata() {
        checks.push(permissions(&metadata, rustix::process::geteuid().as_raw(), &readable_secrets(home)));
    }
    let changed = home.state_file().metadata().and_then(|metadata| metadata.modified()).ok();
    checks.extend(changed.map(|changed| clock(changed, SystemTime::now())));
    checks
}

/// Judges a file system by its magic number, see statfs(2).
fn file_system(magic: u64) -> Check {
    const NAME: &str = "file-system";
    let remedy = "use a folder on a local disk: --dir, or XDG_DATA_HOME";
    let network = |name: &str| {
        let detail = format!("{name}, a network file system: locks and notifications may fail, and writes are slow");
        Check::warning(Area::Folder, NAME, detail, remedy)
    };
    let lost =
        |name: &str, when: &str| Check::warning(Area::Folder, NAME, format!("{name}: data is lost {when}"), remedy);
    match magic {
        0x6969 => network("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => network("SMB"),
        0x5346_414f | 0x6b41_4653 => network("AFS"),
        0x00c3_6400 => network("Ceph"),
        0x0102_1997 => network("9p"),
        0x6573_5546 => {
            let detail = "FUSE: whether locks, notifications and fdatasync work depends on the program behind it";
            Check::warning(Area::Folder, NAME, detail, remedy)
        }
        0x0102_1994 | 0x8584_58f6 => lost("tmpfs", "when the machine stops"),
        0x794c_7630 => lost("overlayfs", "with its container"),
        0xef53 => Check::ok(Area::Folder, NAME, "ext4"),
        0x5846_5342 => Check::ok(Area::Folder, NAME, "XFS"),
        0x9123_683e => Check::ok(Area::Folder, NAME, "Btrfs"),
        0x2fc1_2fc1 => Check::ok(Area::Folder, NAME, "ZFS"),
        0xf2f5_2010 => Check::ok(Area::Folder, NAME, "F2FS"),
        other => Check::ok(Area::Folder, NAME, format!("local, of type {other:#x}")),
    }
}

fn space(found: &StatVfs) -> Check {
    space_of(found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize))
}

fn space_of(free: u64, total: u64) -> Check {
    const NAME: &str = "space";
    let detail = format!("{} of {} are free", bytes(free), bytes(total));
    let remedy = "free space on this file system; until then, gitcd refuses writes when it is full";
    match free {
        ..FULL_BYTES => Check::failure(Area::Folder, NAME, detail, remedy),
        FULL_BYTES..LITTLE_BYTES => Check::warning(Area::Folder, NAME, detail, remedy),
        _ => Check::ok(Area::Folder, NAME, detail),
    }
}

fn inodes(found: &StatVfs) -> Check {
    inodes_of(found.f_favail, found.f_files)
}

fn inodes_of(free: u64, total: u64) -> Check {
    const NAME: &str = "inodes";
    let detail = format!("{free} of {total} inodes are free");
    match (free, total) {
        (_, 0) => Check::skipped(Area::Folder, NAME, "this file system has no fixed number of inodes"),
        (0, _) => Check::failure(Area::Folder, NAME, detail, "delete files on this file system"),
        (..FEW_INODES, _) => Check::warning(Area::Folder, NAME, detail, "delete files on this file system"),
        _ => Check::ok(Area::Folder, NAME, detail),
    }
}

/// Measures writes as gitcd's journal makes them. The file has no name, so nothing can be left behind.
fn sync_latencies(folder: &Path) -> io::Result<Vec<Duration>> {
    let file: File = tempfile::tempfile_in(folder)?;
    let since = Instant::now();
    let mut latencies = Vec::new();
    for at in 0..SYNCS {
        let before = Instant::now();
        file.write_all_at(&[0x5a; SYNC_BYTES], (at * SYNC_BYTES) as u64)?;
        file.sync_data()?;
        latencies.push(before.elapsed());
        if since.elapsed() > MEASURED {
            break;
        }
    }
    Ok(latencies)
}

fn sync(measured: io::Result<Vec<Duration>>) -> Check {
    const NAME: &str = "fdatasync";
    let mut latencies = match measured {
        Ok(latencies) => latencies,
        Err(error) => {
            let remedy = "make the folder writable, and free space if there is none";
            return Check::failure(Area::Folder, NAME, format!("cannot write in the folder: {error}"), remedy);
        }
    };
    latencies.sort_unstable();
    let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
    let longest = latencies.last().copied().unwrap_or_default();
    let ms = |latency: Duration| format!("{:.2} ms", latency.as_secs_f64() * 1000.0);
    let detail = format!("median {}, maximum {} of {} writes of 4 KiB", ms(median), ms(longest), latencies.len());
    if median <= SLOW && longest < STALLED {
        return Check::ok(Area::Folder, NAME, detail);
    }
    let remedy = "every write of a client waits for it: use a faster disk, or stop what else writes to it";
    Check::warning(Area::Folder, NAME, detail, remedy)
}

fn permissions(folder: &Metadata, user: u32, readable: &[PathBuf]) -> Check {
    permissions_of(folder.mode() & 0o7777, folder.uid() == user, readable)
}

fn permissions_of(mode: u32, is_own: bool, readable: &[PathBuf]) -> Check {
    const NAME: &str = "permissions";
    if !is_own {
        let remedy = "run trishanku as its owner, or choose another folder with --dir";
        return Check::failure(Area::Folder, NAME, "the folder belongs to another user", remedy);
    }
    if mode & 0o077 != 0 {
        let detail = format!("mode {mode:04o}: other users can read the folder, which contains Secrets and keys");
        return Check::failure(Area::Folder, NAME, detail, "set it to 0700, as the next `trishanku up` does");
    }
    if readable.is_empty() {
        return Check::ok(Area::Folder, NAME, format!("mode {mode:04o}, and 0600 for keys"));
    }
    let named: Vec<String> = readable.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    let others = readable.len().saturating_sub(NAMED);
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    let detail = format!("mode {mode:04o}, but a copy could be read by other users: {}{others}", named.join(", "));
    Check::warning(Area::Folder, NAME, detail, "set the files to 0600")
}

/// Returns the private keys and kubeconfigs that other users could read if the folder were open.
fn readable_secrets(home: &Home) -> Vec<PathBuf> {
    let keys = fs::read_dir(home.keys()).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_secret = |path: &PathBuf| path.extension().is_some_and(|end| end == "key" || end == "kubeconfig");
    let paths = keys.filter(is_secret).chain([home.kubeconfig(), home.state_file()]);
    paths.filter(|path| path.metadata().is_ok_and(|metadata| metadata.mode() & 0o077 != 0)).collect()
}

/// Compares the clock with the time at which the supervisor last wrote its state.
fn clock(written: SystemTime, now: SystemTime) -> Check {
    const NAME: &str = "file-times";
    match written.duration_since(now) {
        Ok(ahead) if ahead > AHEAD => {
            let detail = format!("the clock is {} s behind the last change of state.json", ahead.as_secs());
            Check::warning(
                Area::Folder,
                NAME,
                detail,
                "set the clock; commits that are made meanwhile look older than they are",
            )
        }
        _ => Check::ok(Area::Folder, NAME, "no file is newer than the clock"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn file_systems_that_lose_data_or_locks_are_warnings() {
        for (magic, status, part) in [
            (0xef53, Status::Ok, "ext4"),
            (0x4711, Status::Ok, "0x4711"),
            (0x6969, Status::Warning, "NFS, a network file system"),
            (0xfe53_4d42, Status::Warning, "SMB"),
            (0x6573_5546, Status::Warning, "FUSE"),
            (0x0102_1994, Status::Warning, "tmpfs: data is lost when the machine stops"),
            (0x794c_7630, Status::Warning, "overlayfs: data is lost with its container"),
        ] {
            let check = file_system(magic);
            assert!(check.status == status && check.detail.contains(part), "{check:?}");
        }
    }

    #[test]
    fn a_full_file_system_fails_and_a_nearly_full_one_warns() {
        let statuses = [FULL_BYTES - 1, LITTLE_BYTES - 1, LITTLE_BYTES].map(|free| space_of(free, 100 << 30).status);
        assert_eq!(statuses, [Status::Failure, Status::Warning, Status::Ok]);
        assert_eq!(space_of(65 << 30, 252 << 30).detail, "65 GiB of 252 GiB are free");
        let statuses = [(0, 9), (9, 99), (1 << 20, 1 << 21), (0, 0)].map(|(free, total)| inodes_of(free, total).status);
        assert_eq!(statuses, [Status::Failure, Status::Warning, Status::Ok, Status::Skipped]);
    }

    #[test]
    fn slow_writes_are_a_warning_and_impossible_ones_a_failure() {
        let of = |millis: &[u64]| sync(Ok(millis.iter().map(|&ms| Duration::from_millis(ms)).collect()));
        let good = of(&[3, 1, 200]);
        assert_eq!(good.status, Status::Ok);
        assert_eq!(good.detail, "median 3.00 ms, maximum 200.00 ms of 3 writes of 4 KiB");
        assert_eq!([of(&[11, 12, 1]).status, of(&[1, 1, 1000]).status], [Status::Warning; 2]);
        assert_eq!(sync(Err(io::ErrorKind::StorageFull.into())).status, Status::Failure);
    }

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let latencies = sync_latencies(folder.path()).unwrap();
        assert!((1..=SYNCS).contains(&latencies.len()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(sync_latencies(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn an_open_folder_fails_and_an_open_file_in_it_warns() {
        assert_eq!(permissions_of(0o700, true, &[]).status, Status::Ok);
        assert_eq!(permissions_of(0o700, false, &[]).status, Status::Failure);
        let open = permissions_of(0o750, true, &[]);
        assert!(open.status == Status::Failure && open.detail.starts_with("mode 0750"), "{open:?}");
        let keys: Vec<PathBuf> = (0..5).map(|at| format!("{at}.key").into()).collect();
        let warned = permissions_of(0o700, true, &keys);
        assert!(warned.status == Status::Warning && warned.detail.ends_with("2.key and 2 more"), "{warned:?}");
    }

    #[test]
    fn a_clock_that_was_set_back_is_a_warning() {
        let now = SystemTime::now();
        assert_eq!(clock(now - Duration::from_hours(9), now).status, Status::Ok);
        assert_eq!(clock(now + Duration::from_secs(1), now).status, Status::Ok);
        let behind = clock(now + Duration::from_mins(2), now);
        assert!(behind.status == Status::Warning && behind.detail.contains("120 s behind"), "{behind:?}");
    }
}
