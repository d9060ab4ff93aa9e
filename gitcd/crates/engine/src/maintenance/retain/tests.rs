use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn a_snapshot_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(replayed_from(folder.path()).unwrap().is_empty());
    fs::create_dir_all(folder.path().join("gitcd/main")).unwrap();
    assert!(replayed_from(folder.path()).unwrap().is_empty());
    fs::write(folder.path().join("gitcd/main/snapshot"), "damaged").unwrap();
    replayed_from(folder.path()).unwrap_err();
    fs::remove_dir_all(folder.path().join("gitcd")).unwrap();
    fs::write(folder.path().join("gitcd"), "no folder").unwrap();
    replayed_from(folder.path()).unwrap_err();
}

#[tokio::test]
async fn what_cannot_be_cut_safely_is_refused() {
    let Ok(git) = Program::find().await else { return };
    let (_running, stopped) = watch::channel(false);
    let folder = tempfile::tempdir().unwrap();
    git2::Repository::init_bare(folder.path()).unwrap();
    let start = async || Retention::start(git.clone(), folder.path(), stopped.clone()).await;
    let first = start().await.unwrap();
    assert!(matches!(start().await, Err(RetainError::Busy(_))));
    drop(first);
    fs::write(folder.path().join("gc.pid"), "1 host").unwrap();
    assert!(matches!(start().await, Err(RetainError::Collected(_))));
    fs::remove_file(folder.path().join("gc.pid")).unwrap();
    let alternates = folder.path().join("objects/info/alternates");
    fs::write(&alternates, "/elsewhere\n").unwrap();
    assert!(matches!(start().await, Err(RetainError::Fork(_))));
    fs::remove_file(&alternates).unwrap();
    let config = folder.path().join("config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}[extensions]\npartialClone = origin\n")).unwrap();
    assert!(matches!(start().await, Err(RetainError::Partial(_))));
    fs::write(&config, text).unwrap();
    // Served, or in the middle of a push.
    for path in ["gitcd/locks/refs%2Fheads%2Fmain", "objects/tmp_objdir-gitcd-1"] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.to_string_lossy().contains("objdir") {
            fs::create_dir(&path).unwrap();
        } else {
            fs::write(&path, "").unwrap();
        }
        let held = File::open(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockShared).unwrap();
        let retention = start().await.unwrap();
        assert!(matches!(retention.prune().await, Err(RetainError::Served(_))));
        drop(held);
        assert_eq!(retention.prune().await.unwrap(), 0);
    }
}

#[test]
fn the_mode_of_the_boundary_is_that_of_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("HEAD"), "").unwrap();
    fs::set_permissions(folder.path().join("HEAD"), fs::Permissions::from_mode(0o644)).unwrap();
    let boundary = [Oid::from_str(&"a".repeat(40)).unwrap()].into();
    Boundary::read(folder.path()).unwrap().replace(folder.path(), &boundary).unwrap();
    let mode = fs::metadata(folder.path().join("shallow")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}
