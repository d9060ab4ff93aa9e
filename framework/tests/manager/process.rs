//! A manager in a process of its own, which can be killed and stopped.

use std::process::{Child, Command, Stdio};

use kube::Config;
use rustix::process::{Pid, Signal, kill_process};
use trishanku_testkit::{Proxy, wait};

use crate::leases::{assert_handed_over, until_written_by, writer, writes};
use crate::support::{cluster, create, tanks};

const VARIABLE: &str = "FRAMEWORK_TEST_WRITER";

/// Ends when this is dropped, or the process that has it.
struct Process(Child);

impl Process {
    /// Writes as [`writer`] does, until its standard input ends.
    fn start(proxy: &Proxy, namespace: &str, identity: &str) -> Self {
        let settings = format!("{} {namespace} {identity}", proxy.config().cluster_url);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::what_the_process_does", "--ignored"]).env(VARIABLE, settings);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        // It is not waited for yet, so its id is its own.
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "other tests run it in a process of its own"]
async fn what_the_process_does() {
    let settings = std::env::var(VARIABLE).expect("it is run by other tests");
    let [url, namespace, identity] = settings.split(' ').collect::<Vec<_>>()[..] else { panic!("{settings}") };
    let writing = writer(Config::new(url.parse().unwrap()), namespace, identity);
    let end = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    end.await.unwrap().unwrap();
    writing.stop().await;
}

#[tokio::test]
async fn who_was_stopped_writes_nothing_when_it_goes_on() {
    let (cluster, namespace) = cluster("stopped").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let proxy = Proxy::start(cluster).await;
    let one = Process::start(&proxy, &namespace, "one");
    until_written_by(cluster, &namespace, "one").await;
    let other = writer(cluster.config(), &namespace, "other");
    one.signal(Signal::STOP);
    until_written_by(cluster, &namespace, "other").await;
    let seen = proxy.seen().len();
    one.signal(Signal::CONT);
    // It has noticed when it looks at the lease.
    let noticed = wait::until("the first one to go on", async || {
        let new: Vec<_> = proxy.seen().drain(seen..).map(|seen| format!("{} {}", seen.method, seen.uri)).collect();
        if new.iter().any(|request| request.starts_with("GET") && request.contains("/leases/")) {
            Ok(())
        } else {
            Err(format!("{new:?}"))
        }
    });
    noticed.await.unwrap();
    let before = writes(cluster, &namespace).len();
    let more = wait::until("more writes", async || {
        if writes(cluster, &namespace).len() > before + 20 { Ok(()) } else { Err("there are none") }
    });
    more.await.unwrap();
    assert_handed_over(cluster, &namespace, "one", "other");
    other.stop().await;
}

#[tokio::test]
async fn who_is_killed_is_followed_after_the_time_of_the_lease() {
    let (cluster, namespace) = cluster("killed").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let proxy = Proxy::start(cluster).await;
    let one = Process::start(&proxy, &namespace, "one");
    until_written_by(cluster, &namespace, "one").await;
    let other = writer(cluster.config(), &namespace, "other");
    one.signal(Signal::KILL);
    let killed = std::time::Instant::now();
    until_written_by(cluster, &namespace, "other").await;
    println!("taken over {:?} after the kill, with a lease of 3 s", killed.elapsed());
    assert_handed_over(cluster, &namespace, "one", "other");
    other.stop().await;
}
