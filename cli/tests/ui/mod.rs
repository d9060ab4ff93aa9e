//! The web page that `trishanku ui` serves.

#[path = "../../../crates/page/tests/page/client.rs"]
#[allow(dead_code, reason = "the tests of the page use more of it")]
pub(crate) mod client;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use self::client::Client;

/// The variables that would select something else.
const VARIABLES: [&str; 6] =
    ["GITCD_REPO", "GITCD_ENDPOINT", "GITCD_CACERT", "GITCD_CERT", "GITCD_KEY", "TRISHANKU_DIR"];

/// `trishanku ui`, until it is dropped, and a browser that is logged in.
pub(crate) struct Ui {
    process: Mutex<Child>,
    /// What it has printed on standard error.
    errors: Arc<Mutex<String>>,
    pub(crate) client: Client,
}

impl Drop for Ui {
    fn drop(&mut self) {
        let process = self.process.get_mut().expect("no other thread has it");
        // It may have ended.
        let _killed = process.kill();
        let _waited = process.wait();
    }
}

impl Ui {
    /// Serves the page of a repository.
    pub(crate) async fn start(repository: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
        command.arg("ui").arg("--repo").arg(repository).args(options);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        let mut process = command.spawn().expect("the binary was built");
        let errors = Arc::<Mutex<String>>::default();
        let (printed, into) = (BufReader::new(process.stderr.take().expect("it is piped")), errors.clone());
        // It ends with the process.
        std::thread::spawn(move || {
            for line in printed.lines().map_while(Result::ok) {
                eprintln!("{line}");
                into.lock().expect("no thread panics with it").push_str(&(line + "\n"));
            }
        });
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).expect("it prints a URL");
        let (address, path) =
            line.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("it is a URL");
        let mut client = Client::new(address.to_owned());
        let response = client.get(&format!("/{path}")).await;
        let cookie = response.header("set-cookie").expect("the token is right");
        cookie.split(';').next().expect("it has a value").clone_into(&mut client.cookie);
        Self { process: Mutex::new(process), errors, client }
    }

    /// Stops it, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.process.lock().expect("no thread panics with it").id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status();
        assert!(status.expect("kill is installed").success());
    }

    /// Returns whether it has printed a text on standard error.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.errors.lock().expect("no thread panics with it").contains(text)
    }

    /// Returns how it has exited; `None` while it runs.
    pub(crate) fn exit(&self) -> Option<ExitStatus> {
        let mut process = self.process.lock().expect("no thread panics with it");
        process.try_wait().expect("it is a child of the test")
    }
}
