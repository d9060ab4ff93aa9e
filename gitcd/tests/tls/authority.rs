//! Certificate authorities for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has entropy");
        let pem = params.self_signed(&key).expect("the parameters are valid").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The CA's own certificate in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for servers on this machine and for clients.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        self.issue_until(name, 4096)
    }

    /// Issues a certificate that expires after `year`.
    pub(crate) fn issue_until(&self, name: &str, year: i32) -> Pair {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().expect("the system has entropy");
        let cert = params.signed_by(&key, &self.issuer).expect("the parameters are valid").pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
