//! What is accepted as an archive.

use super::*;

#[tokio::test]
async fn an_archive_is_completed_after_a_kill_and_other_folders_are_refused() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.git");
    fs::create_dir(&archive).unwrap();
    fs::write(archive.join("config"), "").unwrap();
    let (retention, planned) = (start(&git, &bare), plan(&bare, &line[2]));
    let refused = archive::keep(&retention, &planned, &archive).await;
    assert!(matches!(refused, Err(RetainError::NoArchive(_))), "{refused:?}");
    // Git has written a part of it.
    fs::write(archive.join("gitcd-new"), "").unwrap();
    fs::write(archive.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(archive.join("config.lock"), "[core]\n").unwrap();
    fs::create_dir(archive.join("refs")).unwrap();
    drop(archive::keep(&retention, &planned, &archive).await.unwrap());
    assert!(git2::Repository::open(&archive).unwrap().find_commit(line[1].parse().unwrap()).is_ok());
    assert!(!archive.join("gitcd-new").exists());
}

/// Returns a bare repository with these commits only, under both references.
fn shallow(bare: &Bare, tip: &str, depth: usize) -> Bare {
    let archive = Bare::new();
    bare.git(&["update-ref", "refs/heads/old", tip]);
    let [data, metadata] = REFERENCES.map(|name| format!("refs/heads/old:{name}"));
    let depth = format!("--depth={depth}");
    archive.git(&["fetch", "-q", "--no-tags", &depth, bare.folder().to_str().unwrap(), &data, &metadata]);
    bare.git(&["update-ref", "-d", "refs/heads/old"]);
    assert!(archive.folder().join("shallow").exists());
    archive
}

/// A push to it succeeds: it only continues what the archive has.
#[tokio::test]
async fn an_archive_that_lacks_older_commits_is_refused_until_it_has_them() {
    let Some(git) = git().await else { return };
    // The second time, the push has nothing to do.
    for tip in [2, 4] {
        let (bare, line) = filled(&["0", "1", "2", "3", "4", "5"]);
        let archive = shallow(&bare, &line[tip], tip - 1);
        assert!(archive.has(&line[2]) && !archive.has(&line[1]));
        let retention = start(&git, &bare);
        let planned = plan(&bare, &line[4]);
        let refused = retention.cut(&planned, Some(archive.folder())).await.unwrap_err();
        let RetainError::Incomplete { folder, missing, first } = &refused else { panic!("{tip}: {refused}") };
        assert_eq!((folder.as_path(), *missing), (archive.folder(), 2), "{tip}");
        assert!(line[..2].contains(&first.to_string()), "{tip}: {first}");
        assert!(!bare.folder().join("shallow").exists() && !boundary::is_cut(bare.folder()).unwrap(), "{tip}");
        check(&bare, &line, 0, "it is refused");
        archive.git(&["fetch", "-q", "--unshallow", bare.folder().to_str().unwrap(), REFERENCES[0]]);
        retention.cut(&planned, Some(archive.folder())).await.unwrap();
        check(&bare, &line, 4, "the archive has the whole history");
    }
}

/// The commits are there until `git gc`.
#[tokio::test]
async fn an_archive_that_is_about_to_lose_older_commits_is_refused() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3", "4", "5"]);
    let archive = shallow(&bare, &line[4], 4);
    archive.git(&["fetch", "-q", "--unshallow", bare.folder().to_str().unwrap(), REFERENCES[0]]);
    fs::write(archive.folder().join("shallow"), format!("{}\n", line[2])).unwrap();
    assert!(line[..5].iter().all(|oid| archive.has(oid)));
    let retention = start(&git, &bare);
    let refused = retention.cut(&plan(&bare, &line[4]), Some(archive.folder())).await.unwrap_err();
    assert!(matches!(&refused, RetainError::Unreachable { .. }), "{refused}");
    assert!(!boundary::is_cut(bare.folder()).unwrap());
    check(&bare, &line, 0, "it is refused");
}

#[tokio::test]
async fn a_partial_clone_is_refused_as_an_archive() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let retention = start(&git, &bare);
    let planned = plan(&bare, &line[2]);
    let (configured, fetched) = (Bare::new(), Bare::new());
    // As current versions of Git do it.
    configured.git(&["config", "remote.origin.promisor", "true"]);
    configured.git(&["config", "remote.origin.partialclonefilter", "blob:none"]);
    fs::write(fetched.folder().join("objects/pack/pack-1.promisor"), "").unwrap();
    for archive in [configured, fetched] {
        let refused = retention.cut(&planned, Some(archive.folder())).await.unwrap_err();
        assert!(matches!(&refused, RetainError::PartialArchive(path) if path == archive.folder()), "{refused}");
        assert_eq!(archive.git(&["for-each-ref"]), "", "nothing was pushed");
        assert!(!bare.folder().join("shallow").exists() && !boundary::is_cut(bare.folder()).unwrap());
    }
    check(&bare, &line, 0, "it is refused");
}

/// A run that does not know of the other one would remove what that one creates.
#[tokio::test]
async fn an_archive_is_used_by_one_run_at_a_time() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2"]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive.git");
    let retention = start(&git, &bare);
    let planned = plan(&bare, &line[2]);
    fs::create_dir(&archive).unwrap();
    for name in ["gitcd-new", "config.lock"] {
        fs::write(archive.join(name), "").unwrap();
    }
    let held = File::open(&archive).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let refused = archive::keep(&retention, &planned, &archive).await;
    assert!(matches!(&refused, Err(RetainError::ArchiveBusy(path)) if *path == archive), "{refused:?}");
    assert!(archive.join("config.lock").exists(), "nothing was removed");
    rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
    let kept = archive::keep(&retention, &planned, &archive).await.unwrap();
    let refused = archive::keep(&retention, &planned, &archive).await;
    assert!(matches!(refused, Err(RetainError::ArchiveBusy(_))), "{refused:?}");
    drop(kept);
    retention.cut(&planned, Some(&archive)).await.unwrap();
    check(&bare, &line, 2, "the archive is free again");
}

/// The receiving side of a push may outlive the run that was killed, and continue beside the next one.
#[tokio::test]
async fn two_runs_may_push_the_same_to_an_archive() {
    let Some(git) = git().await else { return };
    let (bare, line) = filled(&["0", "1", "2", "3", "4", "5"]);
    let folder = tempfile::tempdir().unwrap();
    let (archive, other) = (folder.path().join("archive.git"), folder.path().join("other.git"));
    let copied = std::process::Command::new("cp").arg("-a").args([bare.folder(), &other]).status().unwrap();
    assert!(copied.success());
    let (one, two) = (start(&git, &bare), start_in(&git, &other));
    fs::create_dir(&archive).unwrap();
    let path = archive.to_str().unwrap();
    for (oldest, older) in [(1, 1), (3, 2), (5, 4)] {
        let (longer, shorter) = (plan(&bare, &line[oldest]), plan(&bare, &line[older]));
        // Without the lock, which the receiving side does not have.
        let kept = tokio::join!(archive::fill(&one, &longer, &archive, path), async {
            // It is created once.
            if oldest == 1 { Ok(()) } else { archive::fill(&two, &shorter, &archive, path).await }
        });
        assert!(matches!(kept, (Ok(()), Ok(()))), "{kept:?}");
        let found = git2::Repository::open(&archive).unwrap();
        for reference in REFERENCES {
            assert_eq!(found.refname_to_id(reference).unwrap().to_string(), line[oldest], "{reference}");
        }
    }
}
