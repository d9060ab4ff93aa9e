//! Access to remotes with the `git` program: over SSH, and over HTTP where `smart` cannot.
//!
//! Credentials come from files that are read again for each use. `git` asks this executable for them, which is its
//! `GIT_ASKPASS` and `GIT_SSH`, so that no secret is in an argument, in the environment, in the repository's configuration or
//! in a log.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::program;

use super::authorities::Authorities;
use super::credentials::{Credentials, matching};
use super::progress::FetchProgress;
use super::status::Condition;
use super::wire::{Cause, LIMIT, TransportError};

const STORE: &str = "GITCD_ASK_STORE";
const TOKEN: &str = "GITCD_ASK_TOKEN";
const FOLDER: &str = "GITCD_ASK_FOLDER";
/// The server that the token or folder is for: a remote may redirect to another one.
const TOKEN_FOR: &str = "GITCD_ASK_TOKEN_FOR";
/// A repository's configuration with a password in the URL of a remote.
const CONFIG: &str = "GITCD_ASK_CONFIG";
const SSH_KEY: &str = "GITCD_SSH_KEY";
const SSH_KNOWN_HOSTS: &str = "GITCD_SSH_KNOWN_HOSTS";
/// Whether credentials may be sent over plain HTTP to other machines.
const PLAIN: &str = "GITCD_ASK_PLAIN_HTTP";
/// The role in which `git` started this executable.
const AS: &str = "GITCD_RUN_AS";

/// The transports of remotes.
const PROTOCOLS: &str = "file:git:http:https:ssh";
/// Those of a remote over HTTPS, which must not redirect to plain HTTP: credentials would follow.
const SECURE_PROTOCOLS: &str = "file:git:https:ssh";

/// Limit on the bytes that are kept of `git`'s error output.
const MAX_SAID: usize = 64 << 10;

/// Returns the references of a remote that match one of these patterns of `git ls-remote`, annotated tags peeled.
pub(super) fn list(
    repository: &Path,
    url: &str,
    credentials: &Credentials,
    patterns: &[&str],
    limit: Duration,
) -> Result<Vec<(String, Oid)>, TransportError> {
    let at = Address::of(url);
    let words = [&["ls-remote", "--", &at.shown], patterns].concat();
    let text = run_within(limit, repository, credentials, &at, &words, None)?;
    let pair = |line: &str| {
        let (oid, name) = line.split_once('\t')?;
        Some((name.to_owned(), Oid::from_str(oid).ok()?))
    };
    let mut found: Vec<(String, Oid)> = Vec::new();
    for (name, oid) in text.lines().filter_map(pair) {
        match (name.strip_suffix("^{}"), found.last_mut()) {
            (Some(tag), Some((last, known))) if tag == last => *known = oid,
            (Some(_), _) => {}
            (None, _) => found.push((name, oid)),
        }
    }
    Ok(found)
}

/// Fetches `by` more commits of the history into a shallow repository; without `by`, the whole history.
pub(super) fn deepen(
    repository: &Path,
    url: &str,
    credentials: &Credentials,
    references: &[String],
    by: Option<usize>,
) -> Result<(), TransportError> {
    let at = Address::of(url);
    let by = by.map_or_else(|| "--unshallow".to_owned(), |by| format!("--deepen={by}"));
    let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", &by];
    words.extend(["--", &at.shown]);
    words.extend(references.iter().map(String::as_str));
    run_within(LIMIT, repository, credentials, &at, &words, None).map(drop)
}

/// Fetches all objects that references need, whether they exist here or not.
pub(super) fn fetch_again(
    repository: &Path,
    url: &str,
    credentials: &Credentials,
    names: &[&str],
    progress: &FetchProgress,
) -> Result<(), TransportError> {
    let at = Address::of(url);
    let mut words =
        vec!["fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refetch"];
    words.extend(["--", &at.shown]);
    words.extend(names);
    run_within(LIMIT, repository, credentials, &at, &words, Some(progress)).map(drop)
}

/// Fetches references into local ones.
pub(super) fn fetch(
    repository: &Path,
    url: &str,
    credentials: &Credentials,
    pairs: &[(String, String)],
    progress: &FetchProgress,
) -> Result<(), TransportError> {
    let specs: Vec<String> = pairs.iter().map(|(from, to)| format!("+{from}:{to}")).collect();
    let at = Address::of(url);
    let mut words = vec!["fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"];
    words.extend(["--", &at.shown]);
    words.extend(specs.iter().map(String::as_str));
    run_within(LIMIT, repository, credentials, &at, &words, Some(progress)).map(drop)
}

/// Pushes references that must have their expected values; atomically if the remote supports it. After a timeout, the push may
/// still arrive.
pub(super) fn push_within(
    limit: Duration,
    repository: &Path,
    url: &str,
    credentials: &Credentials,
    updates: &[(String, Oid, Option<Oid>)],
) -> Result<(), TransportError> {
    let leases: Vec<String> = updates
        .iter()
        .map(|(name, _, expected)| {
            format!("--force-with-lease={name}:{}", expected.map(|oid| oid.to_string()).unwrap_or_default())
        })
        .collect();
    let specs: Vec<String> = updates.iter().map(|(name, new, _)| format!("{new}:{name}")).collect();
    let at = Address::of(url);
    let words = |atomic: bool| {
        let mut words = vec!["push", "--quiet"];
        words.extend(atomic.then_some("--atomic"));
        words.extend(leases.iter().map(String::as_str));
        words.extend(["--", &at.shown]);
        words.extend(specs.iter().map(String::as_str));
        words.into_iter().map(ToOwned::to_owned).collect::<Vec<String>>()
    };
    let attempt = |atomic| {
        let words = words(atomic);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run_within(limit, repository, credentials, &at, &words, None).map(drop)
    };
    match attempt(true) {
        Err(error) if error.cause == Cause::NotAtomic => attempt(false),
        outcome => outcome,
    }
}

/// A URL that is safe to show.
struct Address {
    shown: String,
    /// Whether the original URL has a password.
    has_password: bool,
}

impl Address {
    fn of(url: &str) -> Self {
        let shown = url.split_once("://").and_then(|(scheme, rest)| {
            let (userinfo, _) = rest.split('/').next()?.rsplit_once('@')?;
            let (user, _) = userinfo.split_once(':')?;
            Some(format!("{scheme}://{user}{}", &rest[userinfo.len()..]))
        });
        Self { has_password: shown.is_some(), shown: shown.unwrap_or_else(|| url.to_owned()) }
    }

    /// Returns the URL without the user.
    fn bare(&self) -> String {
        let bare = self.shown.split_once("://").and_then(|(scheme, rest)| {
            let (userinfo, _) = rest.split('/').next()?.rsplit_once('@')?;
            Some(format!("{scheme}://{}", &rest[userinfo.len() + 1..]))
        });
        bare.unwrap_or_else(|| self.shown.clone())
    }
}

fn run_within(
    limit: Duration,
    repository: &Path,
    credentials: &Credentials,
    at: &Address,
    words: &[&str],
    progress: Option<&FetchProgress>,
) -> Result<String, TransportError> {
    let failed = |said: String| TransportError::new(Condition::Failed, said);
    let withheld = credentials.are_withheld(&at.shown);
    if withheld && (at.has_password || credentials.of(&at.shown).is_some()) {
        return Err(TransportError::withheld(&at.bare()));
    }
    let own = std::env::current_exe().map_err(|error| failed(format!("cannot find the gitcd executable: {error}")))?;
    let mut command = program::guarded("git");
    command.arg("-C").arg(repository);
    // Objects must be durable before a reference points to them, like those that gitcd writes.
    for setting in [
        "core.fsync=committed,reference",
        "core.fsyncMethod=fsync",
        // An interrupted fetch, for example on a full disk, must not leave commits without the objects that they need.
        "fetch.unpackLimit=1",
        "gc.auto=0",
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=60",
    ] {
        command.args(["-c", setting]);
    }
    command.args(["-c", &format!("http.userAgent={}", super::USER_AGENT)]);
    if !credentials.are_absent() || at.has_password || withheld {
        // No credential helpers besides our own.
        command.args(["-c", "credential.helper="]);
    }
    let authorities = credentials.authorities(&at.shown).map(|file| Authorities::read(&file)?.file(repository));
    // Deleted when `git` has ended.
    let authorities = authorities.transpose()?;
    if let Some(file) = &authorities {
        command.arg("-c").arg(format!("http.sslCAInfo={}", file.path().display()));
    }
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    // A remote is a repository. Any other transport, such as `ext::` and `fd::`, is a program or a descriptor of this process.
    let is_secure = at.shown.starts_with("https://") && !credentials.plain_http;
    command.env("GIT_ALLOW_PROTOCOL", if is_secure { SECURE_PROTOCOLS } else { PROTOCOLS });
    command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C").env(AS, "helper").env("GIT_ASKPASS", &own);
    for (name, file) in [
        (STORE, &credentials.store),
        (TOKEN, &credentials.token),
        (FOLDER, &credentials.folder),
        (SSH_KEY, &credentials.ssh_key),
        (SSH_KNOWN_HOSTS, &credentials.ssh_known_hosts),
    ] {
        match file {
            Some(file) => command.env(name, file),
            None => command.env_remove(name),
        };
    }
    command.env(TOKEN_FOR, server(&at.shown));
    if credentials.plain_http {
        command.env(PLAIN, "true");
    } else {
        command.env_remove(PLAIN);
    }
    if at.has_password {
        command.env(CONFIG, repository.join("config"));
    } else {
        command.env_remove(CONFIG);
    }
    command.env("GIT_SSH", &own).env("GIT_SSH_VARIANT", "ssh");
    program::mark(&mut command);
    let missing = |error: std::io::Error| failed(format!("cannot run git: {error}; install Git to reach this remote"));
    let mut child = command.spawn().map_err(missing)?;
    let (mut out, err) = (child.stdout.take(), child.stderr.take());
    let counted = progress.cloned();
    let reading = std::thread::spawn(move || err.map(|err| read_errors(err, counted.as_ref())).unwrap_or_default());
    let printing = std::thread::spawn(move || {
        let mut text = String::new();
        let _cut = out.as_mut().map(|out| out.take(16 * MAX_SAID as u64).read_to_string(&mut text));
        text
    });
    let steps = || progress.map_or(0, FetchProgress::steps);
    let (mut until, mut seen) = (Instant::now() + limit, steps());
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            // A long fetch may take longer, as long as it makes progress.
            Ok(None) if Instant::now() >= until && steps() != seen => {
                (until, seen) = (Instant::now() + limit, steps());
            }
            Ok(None) if Instant::now() < until => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            _ => {
                // The whole process group, since `git` starts other programs.
                let group = rustix::process::Pid::from_child(&child);
                let _ended = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                let _waited = child.wait();
                break None;
            }
        }
    };
    let (said, text) = (reading.join().unwrap_or_default(), printing.join().unwrap_or_default());
    match status {
        Some(status) if status.success() => Ok(text),
        Some(_) => Err(TransportError::of(&said)),
        None => Err(TransportError::new(Condition::Unreachable, format!("timed out after {limit:?}"))),
    }
}

/// Reads what `git` prints to its standard error: counts its progress, and returns the start of everything else.
fn read_errors(mut err: impl std::io::Read, progress: Option<&FetchProgress>) -> String {
    let (mut said, mut line, mut buffer) = (Vec::new(), Vec::new(), [0; 4 << 10]);
    let mut end = |line: &mut Vec<u8>, end: &[u8]| {
        let is_progress = progress.is_some_and(|progress| count(&String::from_utf8_lossy(line), progress));
        if !is_progress && said.len() + line.len() < MAX_SAID {
            said.extend_from_slice(line);
            said.extend_from_slice(end);
        }
        line.clear();
    };
    // An error is the end, too: the process has exited, or was killed.
    while let Ok(bytes @ 1..) = err.read(&mut buffer) {
        for byte in &buffer[..bytes] {
            match byte {
                b'\r' | b'\n' => end(&mut line, b"\n"),
                byte if line.len() < MAX_SAID => line.push(*byte),
                _ => {}
            }
        }
    }
    end(&mut line, b"");
    String::from_utf8_lossy(&said).into_owned()
}

/// Counts a line of progress, such as `Receiving objects:  45% (123/456), 12.00 MiB | 3.00 MiB/s`. Returns whether it is one.
fn count(line: &str, progress: &FetchProgress) -> bool {
    const STEPS: [&str; 4] = ["Enumerating objects:", "Counting objects:", "Compressing objects:", "Resolving deltas:"];
    let Some(received) = line.strip_prefix("Receiving objects:") else {
        let is_step = STEPS.iter().any(|step| line.strip_prefix("remote: ").unwrap_or(line).starts_with(step));
        if is_step {
            progress.step();
        }
        return is_step;
    };
    let objects = received.split_once('(').and_then(|(_, rest)| rest.split_once(')')?.0.split_once('/'));
    if let Some((Ok(done), Ok(all))) = objects.map(|(done, all)| (done.parse(), all.parse())) {
        progress.objects(done, all);
    }
    if let Some((_, size)) = received.split_once("), ") {
        let mut words = size.split(' ');
        let size = words.next().and_then(|size| size.parse::<f64>().ok());
        let unit = match words.next().map(|unit| unit.trim_end_matches(',')) {
            Some("KiB") => 1 << 10,
            Some("MiB") => 1 << 20,
            Some("GiB") => 1 << 30,
            _ => 1,
        };
        if let Some(size) = size {
            progress.bytes((size * f64::from(unit)) as u64);
        }
    }
    true
}

/// Runs as a helper of `git`, if this process was started as one; returns the exit code.
pub fn helper() -> Option<i32> {
    std::env::var_os(AS)?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    // An askpass helper gets one prompt; everything else is a call of ssh.
    if let [prompt] = &words[..]
        && (prompt.starts_with("Username") || prompt.starts_with("Password"))
    {
        return Some(match answer(prompt) {
            Some(answer) => {
                trishanku_stdio::println!("{answer}");
                0
            }
            None => 1,
        });
    }
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]).env_remove(AS);
    if let Some(key) = std::env::var_os(SSH_KEY) {
        ssh.arg("-i").arg(key).args(["-o", "IdentitiesOnly=yes"]);
    }
    if let Some(hosts) = std::env::var_os(SSH_KNOWN_HOSTS) {
        let mut option = std::ffi::OsString::from("UserKnownHostsFile=");
        option.push(hosts);
        ssh.arg("-o").arg(option);
    }
    let error = ssh.args(&words).exec();
    trishanku_stdio::eprintln!("cannot run ssh: {error}; install it to reach this remote");
    Some(127)
}

/// Returns the answer to `Username for 'https://host': ` or `Password for 'https://user@host': `.
fn answer(prompt: &str) -> Option<String> {
    let file = |name| std::env::var_os(name).map(PathBuf::from);
    let asked = prompt.split('\'').nth(1)?;
    let is_for_it = std::env::var(TOKEN_FOR).is_ok_and(|wanted| wanted == server(asked));
    let [token, folder] = [TOKEN, FOLDER].map(|name| file(name).filter(|_| is_for_it));
    let plain_http = std::env::var_os(PLAIN).is_some();
    let credentials = Credentials { store: file(STORE), token, folder, plain_http, ..Credentials::default() };
    if credentials.are_withheld(asked) {
        // The remote may have redirected here.
        return None;
    }
    let written = file(CONFIG).and_then(|config| of_remote(&config, asked));
    let (user, password) = written.or_else(|| credentials.of(asked))?;
    Some(if prompt.starts_with("Password") { password } else { user })
}

/// Returns scheme, host and port of a URL.
fn server(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{}", host.rsplit_once('@').map_or(host, |(_, host)| host)).to_ascii_lowercase()
}

/// Returns user and password from the configured URL of a remote.
fn of_remote(config: &Path, asked: &str) -> Option<(String, String)> {
    let config = git2::Config::open(config).ok()?;
    let mut entries = config.entries(Some("^remote\\..*\\.url$")).ok()?;
    while let Some(Ok(entry)) = entries.next() {
        let found = entry.value().ok().and_then(|url| matching(url, asked));
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_no_arguments() {
        for (url, shown, has_password) in [
            ("https://ann:s%40c@h/x.git", "https://ann@h/x.git", true),
            ("https://ann@h/x.git", "https://ann@h/x.git", false),
            ("https://h/x:y@z.git", "https://h/x:y@z.git", false),
            ("git@h:x.git", "git@h:x.git", false),
        ] {
            let at = Address::of(url);
            assert_eq!((&*at.shown, at.has_password), (shown, has_password));
        }
    }

    #[test]
    fn the_progress_of_git_is_counted_and_everything_else_is_kept() {
        let progress = FetchProgress::default();
        let _running = progress.begin();
        let printed = "remote: Enumerating objects: 5, done.\nremote: Counting objects:  20% (1/5)\r\
            Receiving objects:  45% (123/456)\rReceiving objects:  46% (210/456), 12.50 MiB | 3.00 MiB/s\r\
            Resolving deltas:   0% (0/3)\rremote: a word\nfatal: the end";
        assert_eq!(read_errors(printed.as_bytes(), Some(&progress)), "remote: a word\nfatal: the end");
        let counted = progress.current().unwrap();
        assert_eq!((counted.objects, counted.total_objects, counted.bytes), (210, 456, 12_500 * 1024 * 1024 / 1000));
        assert_eq!(read_errors(&b"fatal: x\n"[..], None), "fatal: x\n");
        let long = "x".repeat(MAX_SAID - 10) + "\n" + &"y".repeat(MAX_SAID);
        assert_eq!(read_errors(long.as_bytes(), None).len(), MAX_SAID - 9);
    }

    #[test]
    fn a_remote_is_not_a_program() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let made = folder.path().join("made");
        for url in [format!("ext::touch {}", made.display()), "fd::0".to_owned(), "transport::x".to_owned()] {
            let failed = list(folder.path(), &url, &Credentials::default(), &["refs/heads/main"], LIMIT).unwrap_err();
            assert!(failed.said.contains("not allowed"), "{url}: {}", failed.said);
        }
        assert!(!made.exists());
    }

    #[test]
    fn a_token_is_for_one_server() {
        let own = server("https://ann@Git.example.org:8443/team/x.git");
        assert_eq!(own, "https://git.example.org:8443");
        assert_eq!(server("https://token@git.example.org:8443"), own);
        for other in ["https://git.example.org", "http://git.example.org:8443", "https://example.org@evil:8443"] {
            assert_ne!(server(other), own, "{other}");
        }
    }
}
