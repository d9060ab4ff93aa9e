//! The certificate that is served, which may change at any time.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::ServerConfig;
use trishanku_service::tls::{Unusable, server_config};

use super::certificates::Pair;

/// Apiservers offer only HTTP/1.1 to webhooks, except at a loopback address, so that not all requests go to one replica
/// (`util/webhook/client.go` of k8s.io/apiserver). HTTP/2 would only let other clients send many requests over one connection.
const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// The certificate for the next connection. Open connections keep those that they started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(Arc<RwLock<Option<Parsed>>>);

/// A certificate with its TLS configuration.
type Parsed = (Pair, Arc<ServerConfig>);

impl Served {
    /// Serves a certificate from now on. Does nothing if it is served already.
    pub(super) fn set(&self, pair: &Pair) -> Result<(), Unusable> {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|(served, _)| served == pair) {
            return Ok(());
        }
        let config = server_config(pair.certificate.as_bytes(), pair.key.as_bytes(), PROTOCOLS)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((pair.clone(), config));
        Ok(())
    }

    /// Returns the TLS configuration; `None` before there is a certificate.
    pub(super) fn config(&self) -> Option<Arc<ServerConfig>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        served.as_ref().map(|(_, config)| config.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::{TlsAcceptor, TlsConnector};
    use trishanku_service::tls::ClientTls;

    use super::*;

    #[tokio::test]
    async fn clients_that_offer_http_2_too_get_http_1() {
        let made = rcgen::generate_simple_self_signed(["a.b.svc".to_owned()]).unwrap();
        let served = Served::default();
        served.set(&Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }).unwrap();
        let acceptor = TlsAcceptor::from(served.config().unwrap());
        let mut trusted = ClientTls::new().authorities(made.cert.pem().as_bytes()).unwrap().config();
        trusted.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (near, far) = tokio::io::duplex(16 << 10);
        let name = ServerName::try_from("a.b.svc").unwrap();
        let connector = TlsConnector::from(Arc::new(trusted));
        let (client, _server) = tokio::try_join!(connector.connect(name, near), acceptor.accept(far)).unwrap();
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    }

    #[test]
    fn a_certificate_is_parsed_once() {
        let pair = || {
            let made = rcgen::generate_simple_self_signed(["a.b.svc".to_owned()]).unwrap();
            Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
        };
        let (served, one, two) = (Served::default(), pair(), pair());
        assert!(served.config().is_none());
        served.set(&one).unwrap();
        let first = served.config().unwrap();
        served.set(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &served.config().unwrap()));
        served.set(&two).unwrap();
        let second = served.config().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let mixed = Pair { key: one.key, ..two };
        assert!(served.set(&mixed).unwrap_err().to_string().contains("tls.key"));
        assert!(Arc::ptr_eq(&second, &served.config().unwrap()), "an unusable one leaves the last usable");
    }
}
