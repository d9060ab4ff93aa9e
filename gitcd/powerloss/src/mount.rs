//! Mounts of a disk on this machine.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use fuser::{Config, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::Disk;
use crate::disk::Phase;
use crate::fuse::Adapter;

const DEVICE: &str = "/dev/fuse";
/// Source in the mount table, followed by the process ID.
const NAME: &str = "powerloss";

/// Returns why no disk can be mounted here, if so.
pub fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount a file system".to_owned());
    }
    File::options().read(true).write(true).open(DEVICE).err().map(|error| format!("{DEVICE}: {error}"))
}

/// A mounted disk. Dropping it unmounts the disk, even if programs still use it.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    /// The thread that answers the kernel.
    session: Option<JoinHandle<()>>,
}

impl Disk {
    /// Mounts the disk at this folder, until the mount is dropped.
    ///
    /// # Errors
    /// Errors of the system; [`why_not`] checks whether disks can be mounted here at all.
    pub fn mount(&self, at: &Path) -> io::Result<Mount> {
        self.0.state.lock().phase = Phase::Running;
        Mount::new(self, at)
    }
}

impl Mount {
    pub(crate) fn new(disk: &Disk, at: &Path) -> io::Result<Self> {
        sweep();
        let device: OwnedFd = File::options().read(true).write(true).open(DEVICE)?.into();
        let data =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", device.as_raw_fd());
        let data = CString::new(data)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        let source = format!("{NAME}-{}", std::process::id());
        rustix::mount::mount(source, at, format!("fuse.{NAME}"), flags, data.as_c_str())?;
        let mut mount = Self { at: at.to_owned(), session: None };
        let session = Session::from_fd(Adapter::new(disk), device, SessionACL::All, Config::default())?;
        let session = std::thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            // Returns an error once the disk is unmounted.
            let _ended = session.run();
        })?;
        mount.session = Some(session);
        Ok(mount)
    }

    /// Returns where the disk is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Forced, so that running calls end with an error; lazily, so that no program has to close its files first.
        if let Err(error) = rustix::mount::unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH) {
            eprintln!("cannot unmount {}: {error}", self.at.display());
            return;
        }
        if let Some(session) = self.session.take() {
            let _ended = session.join();
        }
    }
}

/// Unmounts what killed processes left.
fn sweep() {
    for line in fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
        let mut words = line.split(' ');
        let (source, at) = (words.next(), words.next());
        let owner = source.and_then(|source| source.strip_prefix(NAME)?.strip_prefix('-'));
        if let (Some(owner), Some(at)) = (owner, at)
            && !Path::new("/proc").join(owner).exists()
        {
            let _gone = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
    }
}
