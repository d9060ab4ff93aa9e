//! Checks whether a node can run on this machine, and says what to do if not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::process::geteuid;

const PROGRAMS: [&str; 9] = ["unshare", "nsenter", "mount", "umount", "ip", "iptables", "containerd", "ctr", "runc"];

/// The mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Checks the machine.
///
/// # Errors
/// If something is missing; the text says what to do.
pub(super) fn check() -> anyhow::Result<()> {
    ensure!(
        geteuid().is_root(),
        "a node on this machine needs root, for namespaces and control groups; run this as root, or set TRISHANKU_E2E_CLUSTER=kind where there is a container engine"
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing =
        PROGRAMS.iter().filter(|name| !std::env::split_paths(&path).any(|folder| folder.join(name).is_file()));
    let missing: Vec<_> = missing.copied().collect();
    ensure!(
        missing.is_empty(),
        "a node on this machine needs {}: `hack/node.sh` installs what is missing",
        missing.join(", ")
    );
    let systems = fs::read_to_string("/proc/filesystems")?;
    ensure!(
        systems.lines().any(|line| line.ends_with("\toverlay")),
        "this kernel has no overlayfs, which containers need: load the module `overlay`"
    );
    let temporary = std::env::temp_dir();
    let on = file_system(&temporary)?;
    // Containers use overlayfs, whose upper folder cannot be on overlayfs itself.
    ensure!(
        on != "overlay",
        "{} is on overlayfs, which containers cannot use: set TMPDIR to a folder on a volume",
        temporary.display()
    );
    Ok(())
}

/// The type of a folder's file system.
fn file_system(folder: &Path) -> anyhow::Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let on = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let on = on.filter(|(point, _)| folder.starts_with(point)).max_by_key(|(point, _)| point.len());
    Ok(on.context("no mount contains the folder")?.1.to_owned())
}

/// The hierarchies of control groups: one, or one per controller.
pub(super) fn hierarchies() -> anyhow::Result<Vec<PathBuf>> {
    let root = PathBuf::from(GROUPS);
    if root.join("cgroup.controllers").exists() {
        // Controllers to be enabled below.
        for controller in ["cpuset", "cpu", "io", "memory", "pids"] {
            // kubelet reports the ones that it requires.
            let _absent = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        return Ok(vec![root]);
    }
    let folders = fs::read_dir(&root).with_context(|| format!("no control groups in {GROUPS}"))?;
    let mut found: Vec<_> = folders.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // `cpu,cpuacct` is one hierarchy, and `cpu` a link to it.
    found.retain(|folder| folder.join("cgroup.procs").exists() && !folder.is_symlink());
    if found.is_empty() {
        bail!("no control groups in {GROUPS}");
    }
    found.sort();
    Ok(found)
}
