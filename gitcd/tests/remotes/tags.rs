//! Remotes whose annotated tag is merged.

use crate::host::Host;
use crate::secrets::noting;
use crate::support::{DATA, Repository};
use crate::world::{Following, ONE, bare, commit};

const TAG: &str = "refs/tags/released";

/// Moves an annotated tag of an annotated tag to a commit that sets [`ONE`] to a value.
fn release(remote: &Repository, value: &str) {
    let file = ONE.strip_prefix("/registry/").expect("the key has the prefix");
    let before = remote.run(&["rev-parse", "--verify", "--quiet", DATA]);
    let before = String::from_utf8(before.stdout).expect("an object ID is UTF-8");
    let parents: Vec<_> = before.lines().collect();
    let commit = commit(remote, file, &remote.blob(value), &parents);
    remote.git(&["update-ref", DATA, &commit]);
    remote.git(&["tag", "-f", "-a", "-m", "built", "built", &commit]);
    remote.git(&["tag", "-f", "-a", "-m", "released", "released", "built"]);
}

async fn followed(remote: &Repository, following: Following) {
    release(remote, "1");
    let follower = following.without_pushes().argument(format!("--remote-data-reference-names={TAG}")).start().await;
    follower.has(ONE, "1").await;
    release(remote, "2");
    follower.has(ONE, "2").await;
}

#[tokio::test]
async fn a_tag_in_a_folder_is_followed() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let remote = bare(&folder);
    followed(&remote, Following::of(remote.path())).await;
}

#[tokio::test]
async fn a_tag_of_a_host_is_followed() {
    let host = Host::open().await;
    followed(&host.make(), Following::new(&host.url())).await;
}

#[tokio::test]
async fn a_tag_that_git_fetches_is_followed() {
    let (folder, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remote = bare(&folder);
    let (_, path) = noting(programs.path(), "ssh", "for last; do :; done\nexec sh -c \"$last\"");
    let url = format!("ssh://git@desk.example{}", remote.path().display());
    followed(&remote, Following::new(&url).variable("PATH", &path)).await;
}
