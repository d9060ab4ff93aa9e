//! Remotes over SSH: what `ssh` is called with, and what it says.
//!
//! The `ssh` of these tests does on this machine what it is asked to do on another one.

use std::process::Command;

use gitcd::pull::status::Condition;

use crate::secrets::noting;
use crate::world::{Following, ONE, OTHER, bare, holds};

#[tokio::test]
async fn ssh_gets_the_key_and_the_hosts_and_its_refusals_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (upstream, programs) = (bare(&folder), tempfile::tempdir().unwrap());
    let refusal = folder.path().join("refusal");
    let script = format!(
        "if [ -e '{0}' ]; then cat '{0}' >&2; exit 255; fi\nfor last; do :; done\nexec sh -c \"$last\"",
        refusal.display()
    );
    let (log, path) = noting(programs.path(), "ssh", &script);
    let (key, hosts) = (folder.path().join("id_test"), folder.path().join("known_hosts"));
    std::fs::write(&key, "the-private-secret").unwrap();
    std::fs::write(&hosts, "").unwrap();
    let url = format!("ssh://git@desk.example:2222{}", upstream.path().display());
    let start = || {
        let following = Following::new(&url).variable("PATH", &path);
        let following = following.argument(format!("--ssh-key-file={}", key.display()));
        following.argument(format!("--ssh-known-hosts-file={}", hosts.display())).start()
    };
    let (first, second) = (start().await, start().await);
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    second.put(OTHER, "2").await;
    first.has(OTHER, "2").await;

    let called = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = called.lines().collect();
    let (key, hosts) = (key.display().to_string(), format!("UserKnownHostsFile={}", hosts.display()));
    for words in [
        &["-o", "BatchMode=yes"][..],
        &["-i", &key, "-o", "IdentitiesOnly=yes"],
        &["-o", &hosts],
        &["-p", "2222", "git@desk.example"],
    ] {
        assert!(lines.windows(words.len()).any(|window| window == words), "{words:?} is not in {called}");
    }
    for command in ["git-upload-pack", "git-receive-pack"] {
        let wanted = format!("{command} '{}'", upstream.path().display());
        assert!(lines.contains(&&*wanted), "{wanted} is not in {called}");
    }
    assert!(!called.contains("the-private-secret"));

    for (said, told) in [
        ("git@desk.example: Permission denied (publickey).", Condition::Denied),
        ("Host key verification failed.", Condition::Denied),
        ("ssh: connect to host desk.example port 2222: Connection refused", Condition::Unreachable),
        ("ssh: Could not resolve hostname desk.example: Name or service not known", Condition::Unreachable),
    ] {
        std::fs::write(&refusal, format!("{said}\n")).unwrap();
        first.put(ONE, said).await;
        first.tells(told, &[said]).await;
        std::fs::remove_file(&refusal).unwrap();
        holds(&upstream, ONE, said).await;
        first.is(Condition::Synced).await;
    }
    upstream.fsck();
}

#[tokio::test]
async fn without_ssh_the_error_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    // With everything that `git` needs, but no `ssh`.
    let exec = Command::new("git").arg("--exec-path").output().unwrap();
    let path = String::from_utf8(exec.stdout).unwrap();
    let follower = Following::new("ssh://git@desk.example/x.git").variable("PATH", path.trim()).start().await;
    follower.put(ONE, "1").await;
    follower.tells(Condition::Unreachable, &["ssh", "install"]).await;
    drop(folder);
}
