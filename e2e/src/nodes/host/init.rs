//! The first process of a node's namespaces: it starts programs, reaps what is left to it, and tidies up when nobody speaks to it any more.
//!
//! It is the test binary itself, run once more. Requests come as lines of JSON and are answered in their order. The kernel kills everything else in the
//! namespaces when it ends, and takes their networks and mounts away; what the kernel does not take away, it takes away itself before.

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

/// The argument by which the test binary knows that it is to be this process.
pub(super) const WORD: &str = "--node-init";
/// Groups of processes vanish a moment after the last process of them.
const TIDY_WITHIN: Duration = Duration::from_secs(10);

/// What was made outside of the namespaces.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Belongings {
    /// Everything that is written.
    pub(super) folder: PathBuf,
    /// Whether it stays.
    pub(super) keep: bool,
    /// The groups of processes, one in each hierarchy.
    pub(super) groups: Vec<PathBuf>,
    /// Folders to be removed if they are empty.
    pub(super) made: Vec<PathBuf>,
    /// Settings of the kernel that kubelet changes, and what they were.
    pub(super) settings: BTreeMap<PathBuf, String>,
}

/// A program that goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Program {
    /// By which it is spoken of.
    pub(super) name: String,
    /// Its file.
    pub(super) file: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
    /// Where it writes to.
    pub(super) log: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Start(Program),
    Signal {
        name: String,
        signal: i32,
    },
    /// Whether it runs.
    Look {
        name: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// How it ended.
    Ended(String),
    Failed(String),
}

/// Is this process, if it was started as it: answers with what to exit with.
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
            eprintln!("{WORD} is for the harness, and was given {belongings:?}: {error}");
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
    // Held while a program is started, so that its end is not noticed before its beginning.
    let mut table = lock(table);
    match request {
        Request::Start(program) => {
            if table.running.values().any(|name| *name == program.name) {
                bail!("{} runs already", program.name);
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
                .with_context(|| format!("{name} does not run"))?;
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

/// Takes note of every process that ends; also of those whose parents have ended, which are left to the first process.
fn reap(table: &Mutex<Table>, started: &Condvar) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) => lock(table).note(process, status),
            // There is none now. One may be left by somebody who came in from outside, so this looks again without being told.
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
        // What is mounted on it was unmounted before.
        let _told_below = Command::new("umount").arg("--lazy").arg(mount).stderr(Stdio::null()).status();
    }
    take_away(belongings, until);
}

/// What the kernel does not take away with the namespaces.
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
        // The same value needs no right.
        if fs::read_to_string(setting).is_ok_and(|now| now != *value)
            && let Err(error) = fs::write(setting, value)
        {
            eprintln!("cannot set {} to {} again: {error}", setting.display(), value.trim());
        }
    }
    for folder in &belongings.made {
        // Somebody else may have something in it by now.
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
            // It may have ended by itself.
            let _gone = kill_process(process, Signal::KILL);
        }
        if !any || Instant::now() > until {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The last mounted first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(folder)).collect();
    below.reverse();
    below
}

/// Control groups are removed from below; what is in them is not removed, it vanishes with them.
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
    // Nothing is left half done in it, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
