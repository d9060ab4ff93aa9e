//! A script that drives a browser, and the questions that it asks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The status of `hack/browser.sh` if a part is missing.
const MISSING: i32 = 3;

/// The installed parts.
pub(crate) struct Parts {
    chromium: String,
    /// The folder of the npm packages.
    modules: String,
}

/// Finds the installed parts, or returns which are missing. Installs nothing.
pub(crate) fn find() -> Result<Parts, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/browser.sh");
    let output = Command::new(script).arg("--check").output().expect("the script can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match (output.status.code(), text(&output.stdout).split_once('\n')) {
        (Some(0), Some((chromium, modules))) => {
            Ok(Parts { chromium: chromium.to_owned(), modules: modules.to_owned() })
        }
        (Some(MISSING), _) => Err(text(&output.stderr)),
        (status, _) => panic!("hack/browser.sh exited with {status:?}: {}", text(&output.stderr)),
    }
}

impl Parts {
    /// Plays a script of `scenarios/`, and answers its questions.
    ///
    /// # Errors
    /// What the script reported.
    pub(crate) fn play(
        &self,
        scenario: &str,
        mut settings: Value,
        mut answer: impl FnMut(&str) -> Value,
    ) -> Result<(), Failed> {
        settings["chromium"] = json!(self.chromium);
        settings["modules"] = json!(self.modules);
        let mut script = Script::start(scenario);
        script.send(&settings);
        let lines = BufReader::new(script.node.stdout.take().expect("it is a pipe")).lines();
        for line in lines.map_while(Result::ok) {
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| json!({"say": line}));
            if let Some(process) = message["browser"].as_u64() {
                script.browser = Some(process);
            } else if let Some(question) = message["ask"].as_str() {
                let answer = answer(question);
                script.send(&answer);
            } else {
                println!("{scenario}: {}", message["say"].as_str().unwrap_or(&line));
            }
        }
        script.finish()
    }
}

/// A running script, and its browser. Dropping it ends both.
struct Script {
    node: Child,
    input: ChildStdin,
    errors: Option<JoinHandle<String>>,
    /// The process of the browser.
    browser: Option<u64>,
    /// The home of the browser, with its profile.
    _home: TempDir,
}

impl Script {
    fn start(scenario: &str) -> Self {
        let home = tempfile::tempdir().expect("the temporary folder is writable");
        let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "browser", "run.mjs"].iter().collect();
        let mut node = Command::new("node")
            .arg(script)
            .arg(scenario)
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env_remove("NODE_OPTIONS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Node.js can be run");
        let input = node.stdin.take().expect("it is a pipe");
        let mut stderr = node.stderr.take().expect("it is a pipe");
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is better than nothing.
            let _read = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self { node, input, errors: Some(errors), browser: None, _home: home }
    }

    fn send(&mut self, message: &Value) {
        // The error of a script that has exited is in its output.
        let _sent = writeln!(self.input, "{message}");
    }

    fn finish(mut self) -> Result<(), Failed> {
        let status = self.node.wait().expect("the script is a child of this process");
        if status.success() {
            // The script has closed it.
            self.browser = None;
            return Ok(());
        }
        self.end_browser();
        let errors = self.errors.take().map(|errors| errors.join().unwrap_or_default());
        Err(format!("{status}: {}", errors.unwrap_or_default()).into())
    }

    fn end_browser(&mut self) {
        if let Some(browser) = self.browser.take() {
            // It has a process group of its own. It may have ended with the script.
            let _killed = Command::new("kill").args(["-KILL", "--", &format!("-{browser}")]).output();
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _killed = self.node.kill();
        let _waited = self.node.wait();
        self.end_browser();
    }
}
