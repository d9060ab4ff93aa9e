//! References served by an owner.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use gitcd::config::listen_urls;
use gitcd::git::refs::Refs;
use gitcd::host::server::Server;
use gitcd::host::{Access, Config, Owner, Refusal, Remarks, Update};

use super::git::Repository;

/// An owner of `main` that merges `refs/for/main` into it and refuses `refs/for/bad`.
#[derive(Debug, Default)]
struct Branch {
    asked: Mutex<Vec<Update>>,
}

impl Owner for Branch {
    fn update(&self, update: Update) -> Option<BoxFuture<'_, Result<Remarks, Refusal>>> {
        if !["refs/heads/main", "refs/for/main", "refs/for/bad"].contains(&update.reference.as_str()) {
            return None;
        }
        let decide = async move {
            self.asked.lock().expect("no thread panics while holding the lock").push(update.clone());
            if update.reference == "refs/for/bad" {
                return Err(Refusal::new("it does not\nparse"));
            }
            let moved = tokio::task::spawn_blocking(move || {
                let refs = Refs::open(&update.repository).expect("the repository is sound");
                let old = refs.read("refs/heads/main").expect("the repository is sound");
                refs.update("refs/heads/main", update.new.expect("the repository is sound"), old)
                    .map_err(|error| Refusal::new(&error.to_string()))
            });
            moved.await.expect("the repository is sound")?;
            let mut remarks = Remarks::default();
            remarks.add("merged\nas asked");
            Ok(remarks)
        };
        Some(decide.boxed())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_decides_about_its_references_and_about_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let stored = Repository::init_bare(&folder.path().join("a.git"));
    let branch = Arc::new(Branch::default());
    let config = Config { anonymous: Some(Access::Write), owner: Some(branch.clone()), ..Config::new(folder.path()) };
    let server = Server::start(config, &listen_urls("listen-urls", "http://127.0.0.1:0").unwrap(), None).await.unwrap();
    let url = format!("http://{}/a", server.addresses()[0]);
    let path = folder.path().join("work");
    let work = tokio::task::spawn_blocking(move || {
        let work = Repository::clone(&url, &path, &[]);
        let first = work.commit("first");
        work.git(&["push", "--quiet", "origin", "main", "main:refs/heads/other"]);
        assert_eq!((stored.id("main"), stored.id("other")), (first.clone(), first.clone()));
        let second = work.commit("second");
        let pushed = work.run(&["push", "--quiet", "origin", "main:refs/for/main"]);
        assert!(pushed.status.success(), "{pushed:?}");
        let stderr = String::from_utf8_lossy(&pushed.stderr);
        assert!(stderr.lines().any(|line| line.trim_end() == "remote: merged as asked"), "{stderr}");
        assert_eq!(stored.id("main"), second);
        assert!(!stored.references().contains("refs/for"));
        let third = work.commit("third");
        let complaint = work.fails(&["push", "origin", "main:refs/for/bad", "main:refs/heads/third"]);
        assert!(complaint.contains("(it does not parse)"), "{complaint}");
        assert_eq!(stored.id("third"), third);
        let complaint = work.fails(&["push", "--atomic", "origin", "main", "main:refs/heads/fourth"]);
        assert!(complaint.contains("cannot be part of an atomic push"), "{complaint}");
        assert!(!stored.references().contains("fourth"));
        work.git(&["push", "--quiet", "--atomic", "origin", "main"]);
        stored.fsck();
        work
    });
    let work = work.await.unwrap();
    let asked = branch.asked.lock().unwrap().clone();
    let names: Vec<_> = asked.iter().map(|update| update.reference.as_str()).collect();
    assert_eq!(names, ["refs/heads/main", "refs/for/main", "refs/for/bad", "refs/heads/main"]);
    let real: PathBuf = folder.path().canonicalize().unwrap().join("a.git");
    assert_eq!((&asked[0].repository, asked[0].old, &asked[0].user), (&real, None, &None));
    assert!(asked.iter().all(|update| !update.is_gitcd), "that needs the right to push metadata");
    assert_eq!(asked[3].new.unwrap().to_string(), work.id("HEAD"));
    server.stop().await;
}
