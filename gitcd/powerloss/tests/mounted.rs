//! Calls of real programs on a mounted disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use gitcd_powerloss::{Disk, Moment, Order, why_not};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns whether nothing can be mounted here, and prints why.
fn is_skipped() -> bool {
    why_not().inspect(|reason| eprintln!("SKIPPED: {reason}")).is_some()
}

/// Starts a separate program that uses the disk: calls without an answer would block the whole test.
fn shell(at: &Path, script: &str) -> Child {
    Command::new("sh").args(["-ec", script]).current_dir(at).stdin(Stdio::null()).spawn().expect("the shell starts")
}

#[test]
fn it_is_an_ordinary_file_system_as_long_as_there_is_power() {
    if is_skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(Order::None);
    let mount = disk.mount(folder.path()).unwrap();
    let at = |name: &str| mount.path().join(name);

    fs::create_dir_all(at("a/b")).unwrap();
    let long: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(at("a/b/long"), &long).unwrap();
    assert_eq!(fs::read(at("a/b/long")).unwrap(), long);
    fs::copy(at("a/b/long"), at("a/copy")).unwrap();
    fs::hard_link(at("a/copy"), at("linked")).unwrap();
    assert_eq!(at("linked").metadata().unwrap().nlink(), 2);
    assert_eq!(at("linked").metadata().unwrap().ino(), at("a/copy").metadata().unwrap().ino());
    fs::remove_file(at("a/copy")).unwrap();
    assert_eq!(at("linked").metadata().unwrap().nlink(), 1);
    symlink("linked", at("symbolic")).unwrap();
    assert_eq!(fs::read(at("symbolic")).unwrap(), long);

    let mut file = OpenOptions::new().read(true).write(true).open(at("linked")).unwrap();
    file.set_len(10).unwrap();
    file.write_all_at(b"end", 4094).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut found = Vec::new();
    file.read_to_end(&mut found).unwrap();
    assert_eq!((found.len(), &found[4094..], &found[10..13]), (4097, &b"end"[..], &[0; 3][..]));
    OpenOptions::new().append(true).open(at("linked")).unwrap().write_all(b"!").unwrap();
    assert_eq!(fs::metadata(at("linked")).unwrap().len(), 4098);

    fs::rename(at("linked"), at("a/b/long")).unwrap();
    assert_eq!(fs::read(at("a/b/long")).unwrap().len(), 4098);
    assert_eq!(File::create_new(at("a/b/long")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::remove_dir(at("a")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::read_dir(at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    for number in 0..500 {
        fs::write(at(&format!("a/b/{number}")), "").unwrap();
    }
    // A program that removes entries while it reads the folder gets all of them.
    for entry in fs::read_dir(at("a/b")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(at("a/b")).unwrap();
    // An open file stays after its last name was removed.
    fs::remove_file(at("symbolic")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4098);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let dated = File::create(at("dated")).unwrap();
    dated.set_modified(old).unwrap();
    assert_eq!(at("dated").metadata().unwrap().modified().unwrap(), old);
    let mut git = shell(mount.path(), "git init -q -b main r && cd r && echo 1 >f && git add f && git fsck --strict");
    assert!(git.wait().unwrap().success());
}

#[test]
fn what_was_synced_is_there_after_a_loss_of_power_and_the_rest_may_not_be() {
    if is_skipped() {
        return;
    }
    for order in [Order::None, Order::Kept] {
        let folder = tempfile::tempdir().unwrap();
        let mut lost = 0;
        for seed in 0..20 {
            let disk = Disk::new(order);
            let mount = disk.mount(folder.path()).unwrap();
            fs::create_dir(mount.path().join("d")).unwrap();
            for name in ["d/durable", "d/not"] {
                let mut file = File::create(mount.path().join(name)).unwrap();
                file.write_all(b"all of it").unwrap();
                if name == "d/durable" {
                    file.sync_data().unwrap();
                    File::open(mount.path().join("d")).unwrap().sync_all().unwrap();
                    File::open(mount.path()).unwrap().sync_all().unwrap();
                }
            }
            drop(mount);
            disk.cut(seed, Duration::ZERO);
            let mount = disk.mount(folder.path()).unwrap();
            assert_eq!(fs::read(mount.path().join("d/durable")).unwrap(), b"all of it");
            lost += usize::from(fs::read(mount.path().join("d/not")).is_ok_and(|found| found == b"all of it"));
        }
        assert!((1..20).contains(&lost), "{lost} of 20");
    }
}

#[test]
fn it_freezes_at_the_call_that_was_asked_for_and_lets_go_of_who_was_killed() {
    if is_skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(Order::Kept);
    let mount = disk.mount(folder.path()).unwrap();
    assert!(!disk.wait_until_frozen(Duration::from_millis(10)));
    disk.arm(Moment::after(3).near("f"));
    let mut child = shell(mount.path(), "echo 1 >other; echo 1 >f1; sync f1; echo 2 >f2; echo 3 >f3");
    assert!(disk.wait_until_frozen(PATIENCE));
    assert_eq!(disk.freeze(), "fsync f1");
    assert!(disk.disarm());
    child.kill().unwrap();
    disk.release();
    child.wait().unwrap();
    drop(mount);
    let tally = disk.cut(1, Duration::ZERO);
    assert_eq!(tally.kept_writes + tally.dropped_writes + tally.torn_writes, 2, "one of each file: {tally:?}");

    let mount = disk.mount(folder.path()).unwrap();
    assert!(!mount.path().join("f2").exists());
    disk.arm(Moment::after(1000));
    assert!(!disk.disarm());
    assert!(shell(mount.path(), "echo 1 >f3").wait().unwrap().success(), "the disk works again");
    let copy = tempfile::tempdir().unwrap();
    disk.export(copy.path()).unwrap();
    assert_eq!(fs::read(copy.path().join("f3")).unwrap(), b"1\n");
    assert!(disk.changes() > 5);
}

#[test]
fn a_disk_that_lies_about_a_file_loses_what_was_synced() {
    if is_skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lost = (0..20).filter(|seed| {
        let disk = Disk::new(Order::Kept);
        disk.lie_about("lied");
        let mount = disk.mount(folder.path()).unwrap();
        for name in ["lied", "true"] {
            let mut file = File::create(mount.path().join(name)).unwrap();
            file.write_all(b"content").unwrap();
            file.sync_all().unwrap();
        }
        drop(mount);
        disk.cut(*seed, Duration::ZERO);
        let mount = disk.mount(folder.path()).unwrap();
        assert_eq!(fs::read(mount.path().join("true")).unwrap(), b"content");
        fs::read(mount.path().join("lied")).unwrap() != b"content"
    });
    assert!(lost.count() > 2);
}
