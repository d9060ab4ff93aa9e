//! The init process of a node's namespaces: it starts programs, reaps orphans, and cleans up once its standard input is closed.
//!
//! It is the test binary itself, run again. Requests are lines of JSON, answered in order. When it exits, the kernel kills all
//! other processes of the namespaces and removes their networks and mounts; before, it removes what the kernel does not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use serde::{Deserialize, Serialize};

/// The argument that makes the test binary this process.
pub(super) const WORD: &str = "--node-init";
/// Control groups vanish a moment after their last process.
const TIDY_WITHIN: Duration = Duration::from_secs(10);

/// Resources outside of the namespaces.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Belongings {
    /// The folder of all written files.
    pub(super) folder: PathBuf,
    /// Whether to keep the folder.
    pub(super) keep: bool,
    /// The control groups, one per hierarchy.
    pub(super) groups: Vec<PathBuf>,
    /// Folders to remove if they are empty.
    pub(super) made: Vec<PathBuf>,
    /// Kernel settings that kubelet changes, with their previous values.
    pub(super) settings: BTreeMap<PathBuf, String>,
}

/// A program that keeps running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Program {
    /// Its name in requests.
    pub(super) name: String,
    /// The path of its executable.
    pub(super) file: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
    /// The path of its log.
    pub(super) log: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Start(Program),
    Signal {
        name: String,
        signal: i32,
    },
    /// Asks whether a program is running.
    Look {
        name: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// The program has exited, in this way.
    Ended(String),
    Failed(String),
}

/// Runs as this process if started as such; returns its exit code.
#[must_use]
pub fn init() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(WORD) {
        return None;
    }
    let belongings = arguments.next().unwrap_or_default();
    match serde_json::from_str(&belongings) {
        Ok(belongings) => {
            serve();
            tidy(&belongings);
            Some(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("{WORD} is internal to the harness; invalid argument {belongings:?}: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

#[derive(Default)]
struct Table {
    running: BTreeMap<i32, String>,
    ended: BTreeMap<String, String>,
}

fn serve() {
    let shared = Arc::new((Mutex::new(Table::default()), Condvar::new()));
    let theirs = shared.clone();
    std::thread::spawn(move || reap(&theirs.0, &theirs.1));
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                answer(request, &shared.0, &shared.1).unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))
            }
            Err(error) => Answer::Failed(format!("not a request: {error}")),
        };
        line.clear();
        let Ok(mut text) = serde_json::to_string(&answer) else { return };
        text.push('\n');
        if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn answer(request: Request, table: &Mutex<Table>, started: &Condvar) -> anyhow::Result<Answer> {
    // Held while a program is started, so that its exit is not recorded before its start.
    let mut table = lock(table);
    match request {
        Request::Start(program) => {
            if table.running.values().any(|name| *name == program.name) {
                bail!("{} is already running", program.name);
            }
            let log = File::options().create(true).append(true).open(&program.log);
            let log = log.with_context(|| format!("cannot write {}", program.log.display()))?;
            let child = Command::new(&program.file)
                .args(&program.arguments)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .with_context(|| format!("cannot start {}", program.file.display()))?;
            table.ended.remove(&program.name);
            table.running.insert(i32::try_from(child.id())?, program.name);
            started.notify_all();
            Ok(Answer::Done)
        }
        Request::Signal { name, signal } => {
            let found = table.running.iter().find(|(_, running)| **running == name);
            let process = found
                .and_then(|(process, _)| Pid::from_raw(*process))
                .with_context(|| format!("{name} is not running"))?;
            let signal = Signal::from_named_raw(signal).context("no such signal")?;
            kill_process(process, signal)?;
            Ok(Answer::Done)
        }
        Request::Look { name } => {
            if table.running.values().any(|running| *running == name) {
                return Ok(Answer::Done);
            }
            let ended = table.ended.get(&name).with_context(|| format!("{name} was never started"))?;
            Ok(Answer::Ended(ended.clone()))
        }
    }
}

/// Records the exit of every process, including orphans, which are reparented to the init process.
fn reap(table: &Mutex<Table>, started: &Condvar) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) => lock(table).note(process, status),
            // No child now. One may be reparented by a program that was started from outside, so this looks again after a
            // while.
            _ => {
                drop(started.wait_timeout(lock(table), Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

impl Table {
    fn note(&mut self, process: Pid, status: WaitStatus) {
        if let Some(name) = self.running.remove(&process.as_raw_nonzero().get()) {
            let how = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("with exit status {code}"),
                (None, Some(signal)) => format!("by signal {signal}"),
                (None, None) => "somehow".to_owned(),
            };
            self.ended.insert(name, how);
        }
    }
}

fn tidy(belongings: &Belongings) {
    let until = Instant::now() + TIDY_WITHIN;
    kill_all_others(until);
    let mounted = mounts_below(&belongings.folder).into_iter().chain(belongings.made.clone());
    for mount in mounted {
        // Everything mounted on it has been unmounted.
        let _status = Command::new("umount").arg("--lazy").arg(mount).stderr(Stdio::null()).status();
    }
    take_away(belongings, until);
}

/// Removes what the kernel does not remove with the namespaces.
pub(super) fn take_away(belongings: &Belongings, until: Instant) {
    for group in &belongings.groups {
        while remove_groups(group).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if group.exists() {
            eprintln!("cannot remove the control group {}", group.display());
        }
    }
    for (setting, value) in &belongings.settings {
        // Writing needs a privilege, so an unchanged value is not written.
        if fs::read_to_string(setting).is_ok_and(|now| now != *value)
            && let Err(error) = fs::write(setting, value)
        {
            eprintln!("cannot restore {} to {}: {error}", setting.display(), value.trim());
        }
    }
    for folder in &belongings.made {
        // Another program may have put something into it.
        let _stays = fs::remove_dir(folder);
    }
    if !belongings.keep
        && let Err(error) = fs::remove_dir_all(&belongings.folder)
    {
        eprintln!("cannot remove {}: {error}", belongings.folder.display());
    }
}

fn kill_all_others(until: Instant) {
    loop {
        let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
            let number: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(number).filter(|_| number != 1)
        });
        let mut any = false;
        for process in processes {
            any = true;
            // It may have exited by itself.
            let _gone = kill_process(process, Signal::KILL);
        }
        if !any || Instant::now() > until {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Mount points below a folder, last mounted first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(folder)).collect();
    below.reverse();
    below
}

/// Removes control groups from the bottom up; their files vanish with them.
fn remove_groups(group: &Path) -> std::io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves the data consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
