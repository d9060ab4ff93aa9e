//! The certificate that is served, which may change at any time.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::ServerConfig;
use trishanku_service::tls::{Unusable, server_config};

use super::certificates::Pair;

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
        let config = server_config(pair.certificate.as_bytes(), pair.key.as_bytes(), &[b"h2", b"http/1.1"])?;
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
    use super::*;

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
