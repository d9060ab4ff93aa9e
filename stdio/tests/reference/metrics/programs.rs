//! Runs the programs whose metrics are documented, with all features that have metrics.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::path_of;

/// Long enough for anything that does not hang, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a page is requested until it is complete.
const POLL: Duration = Duration::from_millis(50);

/// A running program, killed when dropped.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a program with only these arguments and variables; its output goes to a file.
    fn start(name: &str, folder: &Path, arguments: &[String], variables: &[(&str, &Path)]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("the folder is writable");
        let mut command = program(path_of(name).as_path(), folder);
        command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
        command.stdout(file.try_clone().expect("the handle can be cloned")).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self { child, log }
    }

    /// Requests the metrics until they contain all of `wanted`.
    fn metrics(&self, address: &str, wanted: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let page = request(address, "GET", "/metrics", "").unwrap_or_else(|error| error.to_string());
            let missing = wanted.iter().find(|wanted| !page.contains(*wanted));
            let Some(missing) = missing else { return page };
            if start.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                panic!("no {missing} in the metrics:\n{page}\nlog:\n{log}");
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Returns a command without the variables of the user, which could configure the program.
fn program(path: &Path, folder: &Path) -> Command {
    let mut command = Command::new(path);
    let search = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", search).env("HOME", folder).current_dir(folder);
    command
}

fn run(path: &Path, folder: &Path, arguments: &[&str]) {
    let output = program(path, folder).args(arguments).output().expect("the program can be started");
    assert!(output.status.success(), "{} {arguments:?}: {output:?}", path.display());
}

/// Returns an empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metrics").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder is this test's own");
    }
    std::fs::create_dir_all(&folder).expect("the build folder is writable");
    folder
}

/// Returns a loopback address of this process alone, so that fixed ports never conflict.
fn host() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.101.{high}.{low}")
}

/// Sends a request, and returns the body of its response.
fn request(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let (mut stream, mut answer) = (TcpStream::connect(address)?, String::new());
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}");
    write!(stream, "{head}\r\n\r\n{body}")?;
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200") { Ok(body.to_owned()) } else { Err(std::io::Error::other(answer)) }
}

/// Returns the metrics of a gitcd with a remote and a writer lease that has served requests.
pub(super) fn gitcd() -> String {
    let folder = folder("gitcd");
    run(Path::new("git"), &folder, &["init", "-q", "--bare", "-b", "main", "upstream.git"]);
    run(&path_of("gitcd"), &folder, &["init", "--repo=store.git"]);
    run(Path::new("git"), &folder, &["-C", "store.git", "remote", "add", "upstream", "../upstream.git"]);
    let address = format!("{}:2379", host());
    let mut arguments =
        ["serve", "--repo=store.git", "--writer-lease=15s", "--remote-names=upstream", "--pull-ticker-duration=1s"]
            .map(ToOwned::to_owned)
            .to_vec();
    arguments.push(format!("--listen-urls=http://{address}"));
    let server = Program::start("gitcd", &folder, &arguments, &[]);
    server.metrics(&address, &["gitcd_revision"]);
    for (path, body) in [
        ("/v3/kv/put", r#"{"key":"L2E=","value":"MQ=="}"#),
        ("/v3/kv/range", r#"{"key":"L2E="}"#),
        // Other alarms need a server in trouble.
        ("/v3/maintenance/alarm", r#"{"action":"ACTIVATE","memberID":"7","alarm":"NOSPACE"}"#),
    ] {
        request(&address, "POST", path, body).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    request(&address, "GET", "/livez", "").expect("the server is alive");
    // Metrics of the remote that exist only after the first pull.
    server.metrics(&address, &["gitcd_remote_last_success_timestamp_seconds{", "gitcd_remote_lag_seconds{"])
}

/// Returns the metrics of a manager whose apiserver has no objects.
pub(super) fn manager() -> String {
    let (folder, host) = (folder("manager"), host());
    let apiserver = serve_empty_lists(&format!("{host}:6443"));
    let kubeconfig = folder.join("kubeconfig");
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "empty",
        "clusters": [{"name": "empty", "cluster": {"server": format!("http://{apiserver}")}}],
        "users": [{"name": "empty", "user": {}}],
        "contexts": [{"name": "empty", "context": {"cluster": "empty", "user": "empty"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("the folder is writable");
    let address = format!("{host}:8080");
    let arguments = [
        "--leader-elect".to_owned(),
        "--leader-election-namespace=trishanku-system".to_owned(),
        "--metrics-secure=false".to_owned(),
        format!("--metrics-bind-address={address}"),
        format!("--health-probe-bind-address={host}:8081"),
    ];
    let manager = Program::start("manager", &folder, &arguments, &[("KUBECONFIG", &kubeconfig)]);
    // The manager takes part in the election when its caches are complete.
    manager.metrics(&address, &["leader_election_master_status{", "rest_client_request_duration_seconds_count{"])
}

/// Serves an apiserver without objects until the test process exits; returns its address.
fn serve_empty_lists(address: &str) -> String {
    let listener = TcpListener::bind(address).expect("the address is this process's own");
    std::thread::spawn(move || {
        // Watches get no response, and stay open.
        let mut watches = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let Ok(head) = head(&mut stream) else { continue };
            let is_list = head.contains("sendInitialEvents=true");
            if head.contains("watch=true") && !is_list {
                watches.push(stream);
                continue;
            }
            let (status, body) = if head.contains("/leases/") {
                (
                    "404 Not Found",
                    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#,
                )
            } else if is_list {
                // It has no lists as streams.
                ("422 Unprocessable Entity", r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":422}"#)
            } else {
                ("200 OK", r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#)
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close");
            // The client may have gone; it repeats its request.
            let _sent = write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    address.to_owned()
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
