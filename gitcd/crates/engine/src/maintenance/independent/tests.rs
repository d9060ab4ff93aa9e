use gitcd_repo::forks::renew;

use super::super::prune::tests::Bare;
use super::*;

fn share(fork: &Bare, origin: &Bare) {
    let objects = origin.folder().join("objects").canonicalize().unwrap();
    fs::write(fork.folder().join("objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
}

/// The second fork needs an object that only the origin has, and that the first fork does not reach.
#[tokio::test]
async fn forks_become_independent_from_the_last_to_the_first() {
    let Ok(git) = Program::find().await else { return };
    let (_running, stopped) = watch::channel(false);
    let (origin, first, second) = (Bare::new(), Bare::new(), Bare::new());
    let line = origin.line(&["0", "1", "2"]);
    share(&first, &origin);
    first.git(&["update-ref", "refs/heads/main", &line[0]]);
    share(&second, &first);
    second.git(&["update-ref", "refs/heads/main", &line[2]]);
    for fork in [&first, &second] {
        drop(renew(fork.folder()).unwrap());
    }
    let refused = make_independent(&git, first.folder(), &stopped).await;
    assert!(matches!(refused, Err(RetainError::Forks(_))), "{refused:?}");
    assert!(make_independent(&git, second.folder(), &stopped).await.unwrap());
    assert!(make_independent(&git, first.folder(), &stopped).await.unwrap());
    assert!(!make_independent(&git, first.folder(), &stopped).await.unwrap(), "it shares nothing now");
    assert!(forks::registered(origin.folder()).unwrap().is_empty());
    fs::remove_dir_all(origin.folder().join("objects")).unwrap();
    for fork in [&first, &second] {
        fork.git(&["fsck", "--full", "--strict"]);
    }
    assert!(second.has(&line[2]) && second.has(&line[1]) && !first.has(&line[1]));
}

#[tokio::test]
async fn a_fork_that_lacks_objects_keeps_sharing() {
    let Ok(git) = Program::find().await else { return };
    let (_running, stopped) = watch::channel(false);
    let (origin, fork) = (Bare::new(), Bare::new());
    let commit = origin.commit("0", &[]);
    share(&fork, &origin);
    fork.git(&["update-ref", "refs/heads/main", &commit]);
    let tree = origin.git(&["rev-parse", &format!("{commit}^{{tree}}")]);
    fs::remove_file(origin.folder().join("objects").join(&tree[..2]).join(&tree[2..])).unwrap();
    make_independent(&git, fork.folder(), &stopped).await.unwrap_err();
    assert!(fork.folder().join("objects/info/alternates").exists());
}
