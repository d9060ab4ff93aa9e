//! A manager in a process of its own, which can be killed and stopped.

use std::process::{Child, Command, Stdio};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Config};
use rustix::process::{Pid, Signal, kill_process};
use trishanku_testkit::{Proxy, TestCluster, wait};

use crate::leases::{assert_handed_over, until_written_by, writer, writes};
use crate::support::{cluster, create, tanks};

const VARIABLE: &str = "FRAMEWORK_TEST_WRITER";
/// Path of libfaketime.
const FAKETIME: &str = "FRAMEWORK_TEST_FAKETIME";

/// A process that ends when this is dropped, or when its parent ends.
struct Process(Child);

impl Process {
    /// Starts a process that writes as [`writer`] does, until its standard input ends.
    fn start(proxy: &Proxy, namespace: &str, identity: &str) -> Self {
        Self::start_in(proxy, namespace, identity, &[])
    }

    /// As [`start`](Self::start), with these variables.
    fn start_in(proxy: &Proxy, namespace: &str, identity: &str, variables: &[(&str, &str)]) -> Self {
        let settings = format!("{} {namespace} {identity}", proxy.config().cluster_url);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::what_the_process_does", "--ignored"]).env(VARIABLE, settings);
        command.envs(variables.iter().copied());
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        // The process has not been reaped yet, so its id is still its own.
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
    let settings = std::env::var(VARIABLE).expect("other tests run this one");
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
    // It has resumed once it reads the lease.
    let noticed = wait::until("the first one to resume", async || {
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
        if writes(cluster, &namespace).len() > before + 20 { Ok(()) } else { Err("too few") }
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

/// The simulation of the lease has such clocks, too, and many more of them.
#[tokio::test]
#[ignore = "needs libfaketime, as FRAMEWORK_TEST_FAKETIME=/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"]
async fn replicas_whose_wall_clocks_are_wrong_and_stand_still_never_work_at_once() {
    let library = std::env::var(FAKETIME).expect("the variable has the path of libfaketime");
    let (cluster, namespace) = cluster("clocks").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let proxy = Proxy::start(cluster).await;
    let at = |identity, time| {
        let variables = [("LD_PRELOAD", library.as_str()), ("FAKETIME", time), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        Process::start_in(&proxy, &namespace, identity, &variables)
    };
    let late = at("late", "-7m");
    until_written_by(cluster, &namespace, "late").await;
    let early = at("early", "+5m");
    late.signal(Signal::STOP);
    until_written_by(cluster, &namespace, "early").await;
    late.signal(Signal::CONT);
    drop(early);
    until_last_written_by(cluster, &namespace, "late").await;
    assert!(switches(cluster, &namespace) == 2, "early wrote in between, and only then");

    // libfaketime stops the clock at a time without a sign.
    let _still = at("still", "2001-01-01 00:00:00");
    late.signal(Signal::STOP);
    until_written_by(cluster, &namespace, "still").await;
    late.signal(Signal::CONT);
    // Three times the duration of the lease, after which others acquire an unchanged one.
    tokio::time::sleep(std::time::Duration::from_secs(9)).await;
    assert_eq!(switches(cluster, &namespace), 3, "its lease is renewed although its clock stands still");
    until_last_written_by(cluster, &namespace, "still").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), &namespace);
    let renewed = leases.get("tank").await.unwrap().spec.unwrap().renew_time.unwrap();
    assert!(renewed.0.to_string().starts_with("2001-01-0"), "{renewed:?}: the clock was not the faked one");
}

/// Returns how often the writer changed, in the order of the writes.
fn switches(cluster: &TestCluster, namespace: &str) -> usize {
    let mut writes = writes(cluster, namespace);
    writes.sort_by(|(_, one, _), (_, other, _)| one.cmp(other));
    writes.windows(2).filter(|pair| pair[0].0 != pair[1].0).count()
}

async fn until_last_written_by(cluster: &TestCluster, namespace: &str, identity: &str) {
    let user = format!("{namespace}-{identity}");
    let written = wait::until(format!("{identity} to write last"), async || {
        let last = writes(cluster, namespace).last().map(|(by, ..)| by.clone());
        if last.as_deref() == Some(&user) { Ok(()) } else { Err(format!("{last:?}")) }
    });
    written.await.unwrap();
}
