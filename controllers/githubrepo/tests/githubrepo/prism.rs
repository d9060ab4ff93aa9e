//! Prism: a mock or validating proxy for GitHub's published description.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mock, or a proxy that validates every request and response.
pub(crate) struct Prism {
    program: Child,
    pub(crate) url: String,
}

/// The folder with Prism and the description; `None` without Node.js, which fails in CI.
fn folder() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/github.sh");
    let output = Command::new(script).output().unwrap();
    if output.status.success() {
        return Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()));
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(std::env::var_os("CI").is_none(), "the contract with GitHub cannot be tested: {why}");
    eprintln!("THE CONTRACT WITH GITHUB IS NOT TESTED: {why}");
    None
}

impl Prism {
    /// Answers with the description's examples, some of which lack required fields, and with 422 to invalid requests.
    pub(crate) fn mock() -> Option<Self> {
        Self::start(&["mock"], &[])
    }

    /// Forwards valid requests, and answers invalid ones with 422 or 500.
    pub(crate) fn before(server: &str) -> Option<Self> {
        Self::start(&["proxy", "--errors"], &[server])
    }

    fn start(command: &[&str], server: &[&str]) -> Option<Self> {
        let folder = folder()?;
        // Free a moment ago: the program cannot inherit a socket.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut program = Command::new(folder.join("prism"))
            .args(command)
            .arg(folder.join("github.json"))
            .args(server)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let begins = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
        assert!(begins, "prism exited: {:?}", program.try_wait());
        // Prism would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { program, url: format!("http://127.0.0.1:{port}") })
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _waited = self.program.wait();
    }
}
