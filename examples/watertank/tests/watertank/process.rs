//! The program as a process, with the permissions of a user.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use trishanku_testkit::{TestCluster, wait};

static STARTED: AtomicU8 = AtomicU8::new(1);

/// A running program; killed when dropped.
pub(crate) struct Watertank {
    program: Child,
    host: String,
}

impl Watertank {
    pub(crate) fn start(cluster: &TestCluster, namespace: &str, user: &str) -> Self {
        // Each replica of each test process has a loopback address of its own, so that their ports do not collide.
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = format!("127.{}.{high}.{low}", STARTED.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(env!("CARGO_BIN_EXE_watertank"));
        command.env("KUBECONFIG", cluster.kubeconfig(Some(user))).env("POD_NAMESPACE", namespace);
        command.env("PROBES", format!("{host}:8081")).env("METRICS", format!("{host}:8080"));
        Self { program: command.stdin(Stdio::null()).spawn().unwrap(), host }
    }

    /// Requests a page until the status is 200.
    pub(crate) async fn page(&self, port: u16, path: &str) -> String {
        let answered = wait::until(path, async || {
            let answer = self.ask(port, path).map_err(|error| error.to_string())?;
            if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(answer) }
        });
        answered.await.unwrap()
    }

    fn ask(&self, port: u16, path: &str) -> std::io::Result<String> {
        let (mut stream, mut answer) = (TcpStream::connect((self.host.as_str(), port))?, String::new());
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.host)?;
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) async fn end(mut self) -> ExitStatus {
        // The process has not been reaped yet, so its id is still its own.
        kill_process(Pid::from_child(&self.program), Signal::TERM).unwrap();
        let ended = wait::until("the program's exit", async || self.program.try_wait().unwrap().ok_or("it still runs"));
        ended.await.unwrap()
    }
}

impl Drop for Watertank {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _reaped = self.program.wait();
    }
}
