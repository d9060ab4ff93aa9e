//! Clients that continuously write to both replicas, whether they accept it or not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trishanku::plane::Assets;

/// An acknowledged write: when, and by which replica.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) at: Instant,
    pub(crate) by: usize,
    pub(crate) name: String,
}

#[derive(Default)]
struct Shared {
    acknowledged: Mutex<Vec<Acknowledged>>,
    next: AtomicUsize,
    is_over: AtomicBool,
}

pub(crate) struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
    proxies: Vec<Proxy>,
}

/// A `kubectl proxy`, so that requests need neither a process nor TLS.
struct Proxy {
    process: Child,
    port: u16,
}

impl Proxy {
    fn start(kubeconfig: &Path) -> Self {
        let mut process = Command::new(Assets::find(None).unwrap().program("kubectl"))
            .args(["proxy", "--port=0"])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let port = said.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("unexpected output of kubectl proxy: {said:?}")) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Creates an object; returns whether that was acknowledged.
fn create(port: u16, name: &str) -> std::io::Result<bool> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    // A client blocked for ever would count nothing.
    connection.set_read_timeout(Some(Duration::from_secs(12)))?;
    let length = body.len();
    write!(
        connection,
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut status = [0; 12];
    connection.read_exact(&mut status)?;
    Ok(status.ends_with(b" 201"))
}

impl Load {
    /// Starts writing with these kubeconfigs, one per replica.
    pub(crate) fn start(kubeconfigs: &[impl AsRef<Path>]) -> Self {
        let shared = Arc::new(Shared::default());
        let proxies: Vec<_> = kubeconfigs.iter().map(|kubeconfig| Proxy::start(kubeconfig.as_ref())).collect();
        let writer = |(by, proxy): (usize, &Proxy)| {
            let (shared, port) = (shared.clone(), proxy.port);
            std::thread::spawn(move || {
                while !shared.is_over.load(Ordering::Relaxed) {
                    let name = format!("k{}", shared.next.fetch_add(1, Ordering::Relaxed));
                    if create(port, &name).unwrap_or_default() {
                        shared.acknowledged.lock().unwrap().push(Acknowledged { at: Instant::now(), by, name });
                    }
                    std::thread::sleep(Duration::from_millis(30));
                }
            })
        };
        let writers = proxies.iter().enumerate().map(writer).collect();
        Self { shared, writers, proxies }
    }

    /// The time of a replica's first acknowledgement after a moment.
    pub(crate) fn first(&self, by: usize, after: Instant) -> Instant {
        let all = self.shared.acknowledged.lock().unwrap();
        all.iter().filter(|one| one.by == by && one.at > after).map(|one| one.at).min().unwrap()
    }

    /// Waits until a replica has acknowledged this many writes after a moment.
    pub(crate) fn until_acknowledged(&self, by: usize, count: usize, after: Instant, patience: Duration) {
        let since = Instant::now();
        loop {
            let all = self.shared.acknowledged.lock().unwrap();
            if all.iter().filter(|one| one.by == by && one.at > after).count() >= count {
                return;
            }
            assert!(since.elapsed() < patience, "replica {by} acknowledged too few writes: {all:?}");
            drop(all);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the load; returns all acknowledged writes in order of time.
    pub(crate) fn end(self) -> Vec<Acknowledged> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.join().unwrap();
        }
        drop(self.proxies);
        let mut all = self.shared.acknowledged.lock().unwrap().clone();
        all.sort_by_key(|one| one.at);
        all
    }
}
