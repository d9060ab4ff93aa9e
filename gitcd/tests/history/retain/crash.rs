//! The states on disk that a crash leaves between two steps of a cut, and clones with a limited depth.

use super::*;

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp can be started");
    assert!(status.success());
}

/// Returns what `gitcd log` has of all keys.
fn log(repository: &Path) -> Vec<Value> {
    let log = gitcd_json(repository, &["log", "--json", "--limit=10000"]);
    log.as_array().expect("the log is a list").clone()
}

/// Makes a repository with a commit of its own on an early state; returns it.
fn lagging(repository: &Repository, folder: &Path, start: &str) -> Repository {
    let path = folder.join("lagging.git");
    copy(repository.path(), &path);
    let lagging = Repository::at(&path);
    let start = lagging.git(&["rev-parse", start]);
    let tree = lagging.git(&["rev-parse", &format!("{}^{{tree}}", start.trim())]);
    let own = lagging.git(&["commit-tree", tree.trim(), "-p", start.trim(), "-m", "its own"]);
    lagging.git(&["update-ref", DATA, own.trim()]);
    lagging
}

/// Fetches the commit of the lagging branch without Git's own merge, and merges it. Returns the error, if it fails.
fn pull(repository: &Path, lagging: &Repository) -> Option<String> {
    Repository::at(repository).run(&["remote", "add", "lagging", &lagging.path().display().to_string()]);
    let output = gitcd(repository, &PULL);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

#[tokio::test]
async fn between_any_two_steps_of_a_first_and_of_a_second_cut_all_is_right_and_it_continues() {
    let mut store = filled().await;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for number in ["first", "second"] {
        if number == "second" {
            fill(&mut store, 20).await;
        }
        store.server.terminate().await;
        let repository = store.server.repository();
        let [before, recorded, cut] = ["before", "recorded", "cut"].map(|name| at.join(format!("{number}-{name}.git")));
        let to_archive = format!("--archive={}", at.join("archive.git").display());
        copy(repository.path(), &before);
        let words = ["--keep-commits=5", &to_archive];
        let made = retain(repository.path(), &words);
        assert!(made["commits"].as_u64().unwrap() > 20, "{made:#}");
        let kept = count(&repository, DATA);
        // Recorded, and not made.
        for (state, has_shallow) in [(&recorded, false), (&cut, true)] {
            copy(&before, state);
            let cuts = state.join("gitcd-boundary/cuts");
            std::fs::create_dir_all(&cuts).unwrap();
            for entry in std::fs::read_dir(repository.path().join("gitcd-boundary/cuts")).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), cuts.join(entry.file_name())).unwrap();
            }
            if has_shallow {
                std::fs::copy(repository.path().join("shallow"), state.join("shallow")).unwrap();
            }
            assert_eq!(log(state), log(if has_shallow { repository.path() } else { &before }), "{number}");
            let found = Repository::at(state);
            found.verify();
            found.fsck();
            // It diverged at a removed commit.
            let scratch = tempfile::tempdir().unwrap();
            let lagging = lagging(&Repository::at(&before), scratch.path(), &format!("{DATA}~{}", kept + 2));
            let merged = scratch.path().join("merged.git");
            copy(state, &merged);
            let error = pull(&merged, &lagging);
            if has_shallow {
                assert!(error.as_ref().is_some_and(|said| said.contains("history was cut")), "{error:?}");
            } else {
                assert_eq!(error, None, "{number}");
            }
            // The same command continues.
            retain(state, &[&words[..], &["--prune=now"]].concat());
            assert_eq!(log(state), log(repository.path()), "{number}");
            found.verify();
            found.fsck();
            let shallow = |path: &Path| std::fs::read(path.join("shallow")).unwrap();
            assert_eq!(shallow(state), shallow(repository.path()), "{number}");
        }
        store.server.restart().await;
        store.client = store.server.client().await;
        check_state(&store).await;
    }
}

/// An external merge whose side line is older than the clone: the log stays on the line of the branch.
#[tokio::test]
async fn the_log_of_a_clone_with_a_limited_depth_is_the_end_of_the_whole_one() {
    let mut store = filled().await;
    store.server.terminate().await;
    let repository = store.server.repository();
    let [head, old] =
        ["", "~12"].map(|back| repository.git(&["rev-parse", &format!("{DATA}{back}")]).trim().to_owned());
    let tree = |of: &str| repository.git(&["rev-parse", &format!("{of}^{{tree}}")]).trim().to_owned();
    let side = repository.git(&["commit-tree", &tree(&old), "-p", &old, "-m", "side"]);
    let merge = ["commit-tree", &tree(&head), "-p", side.trim(), "-p", &head, "-m", "merge"];
    let merge = repository.git(&merge).trim().to_owned();
    repository.git(&["update-ref", DATA, &merge]);
    store.server.restart().await;
    store.client = store.server.client().await;
    fill(&mut store, 3).await;
    store.server.terminate().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clone.git");
    Repository::init(&path);
    let clone = Repository::at(&path);
    let url = format!("file://{}", repository.path().display());
    clone.git(&["fetch", "-q", "--depth=12", &url, &format!("+{DATA}:{DATA}"), &format!("+{METADATA}:{METADATA}")]);
    assert!(path.join("shallow").exists());
    let (whole, limited) = (log(repository.path()), log(&path));
    let common = limited.len().min(8);
    assert!(common > 4, "{limited:?}");
    assert_eq!(limited[..common], whole[..common]);
    let refused = gitcd(&path, &["retain", "--keep-commits=2", "--no-archive"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is a shallow clone"), "{refused:?}");
}
