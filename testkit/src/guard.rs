//! Cleanup: nothing outlives the test process, however it ends.
//!
//! A test starts programs through a shell that holds the other end of a pipe. When the test closes its end, by a drop or by
//! exiting (also by SIGKILL, and with statics that are never dropped), the shell cleans up.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

// Ctrl-C reaches these shells, too; they exit after the test.
const KILL_PROGRAM: &str = r#"
trap '' HUP INT TERM
log=$1 ended=$2; shift 2
exec 3<&0 >>"$log" 2>&1
"$@" </dev/null 3<&- & program=$!
{ read -r _ <&3; kill -KILL "$program"; } 2>/dev/null & reader=$!
exec 3<&- </dev/null
wait "$program" 2>/dev/null; echo "$?" >"$ended"
kill -KILL "$reader" 2>/dev/null
"#;

const REMOVE_FOLDER: &str = r#"
trap '' HUP INT TERM
read -r _
folder=$1; shift
[ $# -eq 0 ] || "$@" >/dev/null
rm -rf "$folder" 2>/dev/null || { sleep 1; rm -rf "$folder"; }
"#;

/// A program that is killed when this is dropped, before the drop returns, or when the process ends.
#[derive(Debug)]
pub(crate) struct Program(Option<Child>);

impl Program {
    /// Starts `command`. Appends its output to `log`, and writes its status to `ended` when it has exited.
    pub(crate) fn start(command: &Command, log: &Path, ended: &Path) -> io::Result<Self> {
        let mut shell = shell(KILL_PROGRAM);
        shell.arg(log).arg(ended).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ok(Self(Some(shell.spawn()?)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _status = end(self.0.take());
    }
}

/// A folder that is removed when this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Folder(Option<Child>);

impl Folder {
    /// Guards `folder`, which must exist.
    pub(crate) fn guard(folder: &Path) -> io::Result<Self> {
        Ok(Self(Some(shell(REMOVE_FOLDER).arg(folder).spawn()?)))
    }

    /// As [`guard`](Self::guard), but first runs `command`, which may use the folder. Its errors go to the test's output.
    pub(crate) fn guard_after(folder: &Path, command: &Command) -> io::Result<Self> {
        let mut shell = shell(REMOVE_FOLDER);
        shell.arg(folder).arg(command.get_program()).args(command.get_args()).stderr(Stdio::inherit());
        Ok(Self(Some(shell.spawn()?)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _status = end(self.0.take());
    }
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "testkit-guard"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

/// Closes the shell's standard input, and waits until it has cleaned up.
fn end(shell: Option<Child>) -> io::Result<ExitStatus> {
    match shell {
        // Closes its input before it waits.
        Some(mut shell) => shell.wait(),
        None => Ok(ExitStatus::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the process with the id in `file` runs; a zombie has no command line.
    fn runs(file: &Path) -> bool {
        let pid = std::fs::read_to_string(file).unwrap();
        std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty())
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !condition() {
            assert!(std::time::Instant::now() < deadline, "the condition never became true");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_is_killed_with_its_guard_and_an_end_of_its_own_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let mut forever = Command::new("sh");
        forever.args(["-c", r#"echo $$ >"$0"; exec sleep 600"#]).arg(file("pid"));
        let program = Program::start(&forever, &file("log"), &file("ended")).unwrap();
        until(|| std::fs::read_to_string(file("pid")).is_ok_and(|pid| pid.ends_with('\n')));
        // During an `exec` it has no command line either.
        until(|| runs(&file("pid")));
        assert!(!file("ended").exists());
        drop(program);
        assert!(!runs(&file("pid")));
        assert_eq!(std::fs::read_to_string(file("ended")).unwrap(), "137\n");

        let mut short = Command::new("sh");
        short.args(["-c", "echo out of order; exit 3"]);
        let _program = Program::start(&short, &file("log"), &file("ended-too")).unwrap();
        until(|| std::fs::read_to_string(file("ended-too")).is_ok_and(|status| status == "3\n"));
        assert_eq!(std::fs::read_to_string(file("log")).unwrap(), "out of order\n");
    }

    #[test]
    fn a_folder_goes_with_its_guard() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a folder");
        std::fs::create_dir_all(folder.join("more")).unwrap();
        drop(Folder::guard(&folder).unwrap());
        assert!(!folder.exists());

        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), "text").unwrap();
        let mut copy = Command::new("cp");
        copy.arg(folder.join("file")).arg(dir.path().join("copy"));
        drop(Folder::guard_after(&folder, &copy).unwrap());
        assert!(!folder.exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("copy")).unwrap(), "text");
    }

    const VARIABLE: &str = "TESTKIT_GUARD_FOLDER";

    #[test]
    #[ignore = "another test runs it in a process of its own, and kills that"]
    fn what_the_killed_process_does() {
        let outer = std::path::PathBuf::from(std::env::var_os(VARIABLE).expect("another test runs this one"));
        let folder = outer.join("a folder");
        std::fs::create_dir(&folder).unwrap();
        let _folder = Folder::guard(&folder).unwrap();
        let mut forever = Command::new("sh");
        forever.args(["-c", r#"echo $$ >"$0"; exec sleep 600"#]).arg(outer.join("pid"));
        let _program = Program::start(&forever, &outer.join("log"), &outer.join("ended")).unwrap();
        std::thread::sleep(std::time::Duration::from_mins(10));
    }

    #[test]
    fn nothing_outlives_a_process_that_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::tests::what_the_killed_process_does", "--ignored"])
            .env(VARIABLE, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = dir.path().join("pid");
        until(|| std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
        // For a moment, it is neither the shell nor the program that replaces it.
        until(|| runs(&pid));
        assert!(dir.path().join("a folder").exists());
        process.kill().unwrap();
        process.wait().unwrap();
        until(|| !runs(&pid) && !dir.path().join("a folder").exists());
    }
}
