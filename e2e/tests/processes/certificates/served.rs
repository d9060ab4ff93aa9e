//! Which certificate a kube-apiserver answers with, asked all the time.

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

/// Asks on one connection that stays open, and on a new one each time; all have to be answered.
pub(super) struct Asking {
    shared: Arc<Shared>,
    file: PathBuf,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Each once, in the order in which they were seen.
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
            let certificate = certificate.ok_or_else(|| io::Error::other("it shows no certificate"))?;
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
        // A session that goes on shows no certificate again.
        config.resumption = Resumption::disabled();
        let (shared, config) = (Arc::new(Shared::default()), Arc::new(config));
        let (port, told) = (machine.port(&format!("{heaven}/kube-apiserver")), shared.clone());
        let thread = std::thread::spawn(move || *told.problem.lock().unwrap() = told.ask_all(port, &config).err());
        Self { shared, file: folder.join("tls.crt"), thread }
    }

    /// The certificate that it is to answer with.
    pub(super) fn file(&self) -> Certificate {
        CertificateDer::from_pem_file(&self.file).unwrap()
    }

    /// Waits until it answers with this one. kube-apiserver is told of changed files, and looks by itself every minute.
    pub(super) fn until_served(&self, wanted: &Certificate) {
        let since = Instant::now();
        while self.shared.served.lock().unwrap().last() != Some(wanted) {
            assert!(!self.thread.is_finished(), "somebody was turned away: {:?}", self.shared.problem.lock().unwrap());
            assert!(since.elapsed() < PATIENCE * 2, "it answers with another certificate for {:?}", since.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it; gives what was served, in this order.
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

/// One request, whose answer has to be `ok`.
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
