//! Polls which certificate a kube-apiserver serves.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::machine::{Machine, PATIENCE};

type Certificate = CertificateDer<'static>;
type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Sends requests on one open connection and on new connections; all must succeed.
pub(super) struct Asking {
    shared: Arc<Shared>,
    file: PathBuf,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Each served certificate once, in order.
    served: Mutex<Vec<Certificate>>,
    problem: Mutex<Option<io::Error>>,
    is_over: AtomicBool,
}

impl Shared {
    fn ask_all(&self, port: u16, config: &Arc<ClientConfig>) -> io::Result<()> {
        let mut old = connect(port, config)?;
        while !self.is_over.load(Ordering::Relaxed) {
            ask(&mut old)?;
            let mut new = connect(port, config)?;
            ask(&mut new)?;
            let certificate = new.conn.peer_certificates().and_then(<[_]>::first).cloned();
            let certificate = certificate.ok_or_else(|| io::Error::other("the server sent no certificate"))?;
            let mut served = self.served.lock().unwrap();
            if served.last() != Some(&certificate) {
                served.push(certificate);
            }
            drop(served);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Asking {
    pub(super) fn start(machine: &Machine, heaven: &str) -> Self {
        let folder = machine.home().secrets().join(format!("{heaven}-cert-kubernetes"));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        // A resumed session has no certificate.
        config.resumption = Resumption::disabled();
        let (shared, config) = (Arc::new(Shared::default()), Arc::new(config));
        let (port, prober) = (machine.port(&format!("{heaven}/kube-apiserver")), shared.clone());
        let thread = std::thread::spawn(move || *prober.problem.lock().unwrap() = prober.ask_all(port, &config).err());
        Self { shared, file: folder.join("tls.crt"), thread }
    }

    /// The certificate in the file.
    pub(super) fn file(&self) -> Certificate {
        CertificateDer::from_pem_file(&self.file).unwrap()
    }

    /// Waits until this certificate is served. kube-apiserver watches its files, and checks them every minute.
    pub(super) fn until_served(&self, wanted: &Certificate) {
        let since = Instant::now();
        while self.shared.served.lock().unwrap().last() != Some(wanted) {
            assert!(!self.thread.is_finished(), "a request failed: {:?}", self.shared.problem.lock().unwrap());
            assert!(since.elapsed() < PATIENCE * 2, "still another certificate after {:?}", since.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops polling; returns the served certificates in order.
    pub(super) fn end(self) -> Vec<Certificate> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        assert!(self.shared.problem.lock().unwrap().is_none(), "{:?}", self.shared.problem);
        std::mem::take(&mut self.shared.served.lock().unwrap())
    }
}

fn connect(port: u16, config: &Arc<ClientConfig>) -> io::Result<Stream> {
    let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
    let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(StreamOwned::new(connection, stream))
}

/// Sends one request, whose response must be `ok`.
fn ask(stream: &mut Stream) -> io::Result<()> {
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let is_ok = answer.starts_with(b"HTTP/1.1 200 ");
    if is_ok { Ok(()) } else { Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())) }
}
