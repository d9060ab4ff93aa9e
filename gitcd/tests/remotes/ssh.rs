//! Remotes over SSH: the arguments of `ssh`, and its errors.
//!
//! Where the arguments matter, `ssh` is a script that runs the remote command on this machine.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gitcd::pull::status::Condition;
use tempfile::TempDir;

use crate::secrets::noting;
use crate::support::{eventually, free_port};
use crate::world::{Following, ONE, OTHER, bare, holds};

#[tokio::test]
async fn ssh_gets_the_key_and_the_hosts_and_its_refusals_are_reported() {
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

    for (said, condition) in [
        ("git@desk.example: Permission denied (publickey).", Condition::Denied),
        ("Host key verification failed.", Condition::Denied),
        ("ssh: connect to host desk.example port 2222: Connection refused", Condition::Unreachable),
        ("ssh: Could not resolve hostname desk.example: Name or service not known", Condition::Unreachable),
    ] {
        std::fs::write(&refusal, format!("{said}\n")).unwrap();
        first.put(ONE, said).await;
        first.fails_with(condition, &[said]).await;
        std::fs::remove_file(&refusal).unwrap();
        holds(&upstream, ONE, said).await;
        first.is(Condition::Synced).await;
    }
    upstream.fsck();
}

#[tokio::test]
async fn without_ssh_the_error_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    // A PATH with all helpers that `git` needs, but without `ssh`.
    let exec = Command::new("git").arg("--exec-path").output().unwrap();
    let path = String::from_utf8(exec.stdout).unwrap();
    let follower = Following::new("ssh://git@desk.example/x.git").variable("PATH", path.trim()).start().await;
    follower.put(ONE, "1").await;
    follower.fails_with(Condition::Unreachable, &["ssh", "install"]).await;
    drop(folder);
}

/// An sshd that accepts one key, for the current user; killed on drop.
struct Sshd {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    server: Option<Child>,
}

impl Sshd {
    /// Starts sshd; `None` if it is not installed and the user cannot install it.
    async fn start() -> Option<Self> {
        let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/lib/ssh/sshd"].map(PathBuf::from);
        let program = places.into_iter().find(|place| place.exists());
        let is_root = rustix::process::getuid().is_root();
        assert!(program.is_some() || !is_root, "sshd is not installed; run hack/sshd.sh");
        let program = program?;
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let port = free_port();
        let mut sshd = Self { program, folder, port, server: None };
        for name in ["host", "client"] {
            sshd.make_key(name);
        }
        sshd.knows("client");
        sshd.is_known_by("host");
        sshd.up().await;
        Some(sshd)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_key(&self, name: &str) {
        let file = self.path(name);
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
        assert!(made.expect("ssh-keygen is installed").success());
    }

    /// Accepts only this key from clients.
    fn knows(&self, name: &str) {
        std::fs::copy(self.path(&format!("{name}.pub")), self.path("authorized_keys")).expect("the key was made");
    }

    /// Makes clients expect this host key.
    fn is_known_by(&self, name: &str) {
        let key = std::fs::read_to_string(self.path(&format!("{name}.pub"))).expect("the key was made");
        std::fs::write(self.path("known_hosts"), format!("[127.0.0.1]:{} {key}", self.port))
            .expect("the folder is writable");
    }

    async fn up(&mut self) {
        // As root, sshd requires this folder, which its service would create.
        let _made_or_not_needed = std::fs::create_dir_all("/run/sshd");
        let option = |name: &str, value: String| format!("-o{name}={value}");
        let mut command = Command::new(&self.program);
        command.args(["-D", "-e", "-f", "/dev/null", "-p", &self.port.to_string()]);
        command.arg(option("ListenAddress", "127.0.0.1".into()));
        command.arg(option("HostKey", self.path("host").display().to_string()));
        command.arg(option("AuthorizedKeysFile", self.path("authorized_keys").display().to_string()));
        // The key's folder is below a world-writable one.
        command.arg(option("StrictModes", "no".into())).arg(option("UsePAM", "no".into()));
        command.arg(option("PasswordAuthentication", "no".into())).arg(option("PidFile", "none".into()));
        // Since OpenSSH 9.8, sshd blocks clients that fail repeatedly, as these tests do; older versions reject the option.
        let lenient = option("PerSourcePenalties", "no".into());
        let test = Command::new(&self.program)
            .args(["-t", "-f", "/dev/null", &lenient])
            .arg(option("HostKey", self.path("host").display().to_string()))
            .output();
        if test.is_ok_and(|test| test.status.success()) {
            command.arg(lenient);
        }
        let log = File::create(self.path("log")).expect("the folder is writable");
        self.server = Some(command.stdin(Stdio::null()).stderr(log).spawn().expect("sshd can be started"));
        eventually("an SSH server", async || TcpStream::connect(("127.0.0.1", self.port)).ok()).await;
    }

    fn down(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have exited by itself; its log then has the reason.
            let _ended = server.kill();
            let _status = server.wait();
        }
    }

    /// A follower of `upstream` through this server.
    fn follow(&self, upstream: &Path) -> Following {
        let whoami = Command::new("id").arg("-un").output().expect("id is installed");
        let user = String::from_utf8(whoami.stdout).expect("user names are UTF-8");
        let url = format!("ssh://{}@127.0.0.1:{}{}", user.trim(), self.port, upstream.display());
        let following = Following::new(&url).argument(format!("--ssh-key-file={}", self.path("client").display()));
        following.argument(format!("--ssh-known-hosts-file={}", self.path("known_hosts").display()))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.down();
    }
}

#[tokio::test]
async fn a_real_server_is_followed_and_what_it_refuses_passes() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let Some(mut sshd) = Sshd::start().await else { return eprintln!("SKIPPED: sshd is not installed") };
    let (first, second) = (sshd.follow(upstream.path()).start().await, sshd.follow(upstream.path()).start().await);
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    second.put(OTHER, "2").await;
    first.has(OTHER, "2").await;

    // Another key, rejected until the client's key file is replaced.
    sshd.make_key("next");
    sshd.knows("next");
    first.put(ONE, "without the key").await;
    first.fails_with(Condition::Denied, &["Permission denied (publickey"]).await;
    // `ssh` reads the public key to know which one to offer.
    for file in [".pub", ""] {
        std::fs::copy(sshd.path(&format!("next{file}")), sshd.path(&format!("client{file}"))).unwrap();
    }
    holds(&upstream, ONE, "without the key").await;
    first.is(Condition::Synced).await;

    // Another host key at the same address.
    sshd.make_key("other");
    sshd.is_known_by("other");
    first.put(ONE, "to another host").await;
    first.fails_with(Condition::Denied, &["Host key verification failed"]).await;
    sshd.is_known_by("host");
    holds(&upstream, ONE, "to another host").await;
    first.is(Condition::Synced).await;

    sshd.down();
    first.put(ONE, "while sshd is down").await;
    first.fails_with(Condition::Unreachable, &["Connection refused"]).await;
    sshd.up().await;
    holds(&upstream, ONE, "while sshd is down").await;
    second.has(ONE, "while sshd is down").await;
    first.is(Condition::Synced).await;
    upstream.fsck();
}
