//! The web page that `trishanku ui` serves.

#[path = "../../../crates/page/tests/page/client.rs"]
#[allow(dead_code, reason = "the tests of the page use more of it")]
pub(crate) mod client;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use self::client::Client;

/// The variables that would select something else.
const VARIABLES: [&str; 6] =
    ["GITCD_REPO", "GITCD_ENDPOINT", "GITCD_CACERT", "GITCD_CERT", "GITCD_KEY", "TRISHANKU_DIR"];

/// `trishanku ui`, until it is dropped, and a browser that is logged in.
pub(crate) struct Ui {
    process: Child,
    pub(crate) client: Client,
}

impl Drop for Ui {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.process.kill();
        let _waited = self.process.wait();
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
        let mut process = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("the binary was built");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).expect("it prints a URL");
        let (address, path) =
            line.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("it is a URL");
        let mut client = Client::new(address.to_owned());
        let response = client.get(&format!("/{path}")).await;
        let cookie = response.header("set-cookie").expect("the token is right");
        cookie.split(';').next().expect("it has a value").clone_into(&mut client.cookie);
        Self { process, client }
    }
}
