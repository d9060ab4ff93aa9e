//! Requests of the kernel (FUSE).

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, MutexGuard};

use crate::Disk;
use crate::content::File;
use crate::disk::{Phase, Shared, State, Verdict};
use crate::log::Inode;
use crate::tree::{Kind, Tree};

/// All changes go through the same kernel, so its cache stays valid.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// The kernel splits large writes, as for a real disk.
const MAX_WRITE: u32 = 128 << 10;
const NAME_BYTES: u32 = 255;
/// Enough blocks for all tests.
const BLOCKS: u64 = 1 << 28;
const BLOCK_BYTES: u32 = 4096;

/// Adapts a disk to the kernel's file system interface.
pub(crate) struct Adapter {
    shared: Arc<Shared>,
    /// Entries of open folders, as of their opening.
    open: Mutex<HashMap<u64, Vec<(OsString, Inode)>>>,
    next: AtomicU64,
}

impl Adapter {
    pub(crate) fn new(disk: &Disk) -> Self {
        Self { shared: Arc::clone(&disk.0), open: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Returns the state and the reply, unless the disk no longer answers.
    fn admit<R: Refuse>(&self, reply: R) -> Option<(MutexGuard<'_, State>, R)> {
        let mut state = self.shared.lock();
        match state.phase {
            Phase::Running => return Some((state, reply)),
            Phase::Frozen(_) => state.held.push(Box::new(|| reply.refuse(Errno::EIO))),
            Phase::Released => reply.refuse(Errno::EIO),
        }
        None
    }

    /// Looks something up and answers.
    fn look<R: Refuse, T>(
        &self,
        reply: R,
        look: impl FnOnce(&Tree) -> Result<T, rustix::io::Errno>,
        answer: impl FnOnce(R, T),
    ) {
        let Some((state, reply)) = self.admit(reply) else { return };
        let found = look(&state.tree);
        drop(state);
        match found {
            Ok(found) => answer(reply, found),
            Err(error) => reply.refuse(errno(error)),
        }
    }

    /// Executes a call that changes something or makes it durable, and answers it, unless the disk freezes at this call.
    fn change<R: Refuse, T: Default>(
        &self,
        reply: R,
        call: &Call<'_>,
        work: impl FnOnce(&mut Tree) -> Result<T, rustix::io::Errno>,
        answer: impl FnOnce(R, T),
    ) {
        let Some((mut state, reply)) = self.admit(reply) else { return };
        let path = call.path(&state.tree);
        let verdict = self.shared.judge(&mut state, call.what, &path, call.is_sync);
        let done = match verdict {
            Verdict::Do | Verdict::DoAndFreeze => work(&mut state.tree),
            Verdict::Freeze | Verdict::Lie => Ok(T::default()),
        };
        if matches!(verdict, Verdict::DoAndFreeze | Verdict::Freeze) {
            state.held.push(Box::new(|| reply.refuse(Errno::EIO)));
            return;
        }
        drop(state);
        match done {
            Ok(done) => answer(reply, done),
            Err(error) => reply.refuse(errno(error)),
        }
    }

    /// Creates a file, folder or link.
    fn make<R: Refuse>(
        &self,
        reply: R,
        request: &Request,
        (folder, name): (INodeNo, &OsStr),
        kind: Kind,
        mode: u32,
        answer: impl FnOnce(R, FileAttr),
    ) {
        let owner = (request.uid(), request.gid());
        let call = Call::new("make", folder).at(name);
        self.change(
            reply,
            &call,
            |tree| {
                let inode = tree.make(folder.0, name, kind, (mode & 0o7777) as u16, owner)?;
                attributes(tree, inode).map(Some)
            },
            |reply, found| match found {
                Some(found) => answer(reply, found),
                None => reply.refuse(Errno::EIO),
            },
        );
    }
}

/// A call that changes the disk.
struct Call<'a> {
    what: &'static str,
    inode: Inode,
    name: Option<&'a OsStr>,
    is_sync: bool,
}

impl<'a> Call<'a> {
    fn new(what: &'static str, inode: INodeNo) -> Self {
        Self { what, inode: inode.0, name: None, is_sync: false }
    }

    fn at(self, name: &'a OsStr) -> Self {
        Self { name: Some(name), ..self }
    }

    fn sync(inode: INodeNo) -> Self {
        Self { is_sync: true, ..Self::new("fsync", inode) }
    }

    fn path(&self, tree: &Tree) -> PathBuf {
        let path = tree.path(self.inode);
        self.name.map_or_else(|| path.clone(), |name| path.join(name))
    }
}

/// A reply that can be an error.
trait Refuse: Send + 'static {
    fn refuse(self, error: Errno);
}

macro_rules! refuse {
    ($($reply:ty),*) => {
        $(impl Refuse for $reply {
            fn refuse(self, error: Errno) {
                self.error(error);
            }
        })*
    };
}

refuse!(ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite);

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn attributes(tree: &Tree, inode: Inode) -> Result<FileAttr, rustix::io::Errno> {
    let node = tree.node(inode)?;
    let (kind, size) = match &node.kind {
        Kind::File(file) => (FileType::RegularFile, file.now().size()),
        Kind::Folder(_) => (FileType::Directory, u64::from(BLOCK_BYTES)),
        Kind::Link(target) => (FileType::Symlink, target.as_os_str().len() as u64),
    };
    Ok(FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: node.modified,
        mtime: node.modified,
        ctime: node.modified,
        crtime: node.modified,
        kind,
        perm: node.mode,
        nlink: node.links,
        uid: node.owner.0,
        gid: node.owner.1,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    })
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config
            .set_max_write(MAX_WRITE)
            .map_err(|nearest| io::Error::other(format!("writes of {nearest} bytes only")))
            .map(drop)
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.look(
            reply,
            |tree| attributes(tree, tree.lookup(parent.0, name)?),
            |reply, found| reply.entry(&KNOWN_FOR, &found, Generation(0)),
        );
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        self.look(reply, |tree| attributes(tree, ino.0), |reply, found| reply.attr(&KNOWN_FOR, &found));
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let modified = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        let what = if size.is_some() { "resize" } else { "set" };
        self.change(
            reply,
            &Call::new(what, ino),
            |tree| {
                if let Some(size) = size {
                    tree.resize(ino.0, size)?;
                }
                tree.set(ino.0, mode.map(|mode| (mode & 0o7777) as u16), (uid, gid), modified)?;
                attributes(tree, ino.0).map(Some)
            },
            |reply, found| match found {
                Some(found) => reply.attr(&KNOWN_FOR, &found),
                None => reply.refuse(Errno::EIO),
            },
        );
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        self.look(
            reply,
            |tree| match &tree.node(ino.0)?.kind {
                Kind::Link(target) => Ok(target.as_os_str().as_encoded_bytes().to_vec()),
                _ => Err(rustix::io::Errno::INVAL),
            },
            |reply, target| reply.data(&target),
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & 0o170_000 != 0o100_000 {
            return reply.error(Errno::EPERM);
        }
        let kind = Kind::File(File::default());
        self.make(reply, request, (parent, name), kind, mode, |reply, made| {
            reply.entry(&KNOWN_FOR, &made, Generation(0));
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let kind = Kind::Folder(BTreeMap::new());
        self.make(reply, request, (parent, name), kind, mode, |reply, made| {
            reply.entry(&KNOWN_FOR, &made, Generation(0));
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let kind = Kind::Link(target.to_owned());
        self.make(reply, request, (parent, link_name), kind, 0o777, |reply, made| {
            reply.entry(&KNOWN_FOR, &made, Generation(0));
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let kind = Kind::File(File::default());
        self.make(reply, request, (parent, name), kind, mode, |reply, made| {
            reply.created(&KNOWN_FOR, &made, Generation(0), FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn link(&self, _request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.change(
            reply,
            &Call::new("link", newparent).at(newname),
            |tree| {
                tree.link(ino.0, newparent.0, newname)?;
                attributes(tree, ino.0).map(Some)
            },
            |reply, found| match found {
                Some(found) => reply.entry(&KNOWN_FOR, &found, Generation(0)),
                None => reply.refuse(Errno::EIO),
            },
        );
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = Call::new("unlink", parent).at(name);
        self.change(reply, &call, |tree| tree.unlink(parent.0, name), |reply, ()| reply.ok());
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = Call::new("rmdir", parent).at(name);
        self.change(reply, &call, |tree| tree.remove_folder(parent.0, name), |reply, ()| reply.ok());
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            return reply.error(Errno::EINVAL);
        }
        let may_replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        self.change(
            reply,
            &Call::new("rename to", newparent).at(newname),
            |tree| tree.rename((parent.0, name), (newparent.0, newname), may_replace),
            |reply, ()| reply.ok(),
        );
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.look(
            reply,
            |tree| tree.file(ino.0).map(drop),
            |reply, ()| reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        );
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.look(
            reply,
            |tree| Ok(tree.file(ino.0)?.now().read(offset, size as usize)),
            |reply, bytes| reply.data(&bytes),
        );
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.change(
            reply,
            &Call::new("write", ino),
            |tree| tree.write(ino.0, offset, data),
            |reply, ()| reply.written(data.len() as u32),
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.change(
            reply,
            &Call::new("fallocate", ino),
            |tree| {
                let size = tree.file(ino.0)?.now().size();
                if offset + length > size { tree.resize(ino.0, offset + length) } else { Ok(()) }
            },
            |reply, ()| reply.ok(),
        );
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _file: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        // Closing a file makes nothing durable.
        self.look(reply, |_| Ok(()), |reply, ()| reply.ok());
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _file: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.change(reply, &Call::sync(ino), |tree| tree.sync(ino.0), |reply, ()| reply.ok());
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _file: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.change(reply, &Call::sync(ino), |tree| tree.sync(ino.0), |reply, ()| reply.ok());
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.look(
            reply,
            |tree| {
                let own = [".", ".."].map(|name| (OsString::from(name), ino.0));
                let entries = tree.folder(ino.0)?.iter().map(|(name, inode)| (name.clone(), *inode));
                Ok(own.into_iter().chain(entries).collect::<Vec<_>>())
            },
            |reply, entries| {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                self.open.lock().insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            },
        );
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some((state, admitted)) = self.admit(reply) else { return };
        reply = admitted;
        if let Some(entries) = self.open.lock().get(&handle.0) {
            for (at, (name, inode)) in entries.iter().enumerate().skip(offset as usize) {
                let kind = match state.tree.node(*inode).map(|node| &node.kind) {
                    Ok(Kind::Folder(_)) => FileType::Directory,
                    Ok(Kind::Link(_)) => FileType::Symlink,
                    Ok(Kind::File(_)) | Err(_) => FileType::RegularFile,
                };
                if reply.add(INodeNo(*inode), at as u64 + 1, kind, name) {
                    break;
                }
            }
        }
        drop(state);
        reply.ok();
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.open.lock().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK_BYTES, NAME_BYTES, BLOCK_BYTES);
    }
}
