//! The certificate authority of heavens, and its replacement.
//!
//! When an authority is replaced, it signs its successor once. This *bridge* accompanies every certificate that the
//! successor signs. So programs that only trust the old authority accept new certificates, and programs with the new
//! bundle trust both. Restarts need no particular order.

use std::collections::BTreeMap;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};
use time::{Duration, OffsetDateTime};

use super::pem::{self, Certificate};
use super::{BACKDATE, BRIDGES, Data, IssueError, LIFE, RenewalCriteria, due};

/// Lifetime of an authority.
const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// After this time, every program that started with an old authority has exited or uses renewed certificates.
const OVERLAP: Duration = LIFE;

pub(super) struct Authority {
    pub(super) certificate: Certificate,
    key: KeyPair,
    /// The trusted certificates: its own first.
    pub(super) trust: Vec<Certificate>,
    /// Certificates of its successors and its own, signed by predecessors.
    pub(super) bridges: Vec<Certificate>,
}

impl Authority {
    /// Returns the stored authority, or a new one if it is invalid or due for renewal. `former` are the certificates that
    /// were trusted before.
    pub(super) fn ours(
        stored: Option<&Data>,
        former: Vec<Certificate>,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        let authority = match stored.and_then(Self::read) {
            Some(sound) if is_due(&sound.certificate, criteria) => sound.succeeded(criteria)?,
            Some(sound) => sound,
            None => {
                let (certificate, key) = fresh(criteria)?;
                Self { certificate, key, trust: Vec::new(), bridges: Vec::new() }
            }
        };
        Ok(authority.trusting(former, criteria))
    }

    /// Returns an authority supplied by users, which is never renewed.
    pub(super) fn theirs(
        secret: &str,
        stored: &Data,
        former: Vec<Certificate>,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        let unusable = |problem| IssueError::Authority { secret: secret.to_owned(), problem };
        let authority = Self::read(stored).ok_or_else(|| {
            unusable("has no CA certificate in tls.crt with its private key (RSA or ECDSA, PKCS #8, or PKCS #1 for RSA) in tls.key")
        })?;
        if authority.certificate.not_after <= criteria.now {
            return Err(unusable("has an expired certificate: replace it"));
        }
        Ok(authority.trusting(former, criteria))
    }

    fn read(stored: &Data) -> Option<Self> {
        let key = pem::key(stored.get("tls.key"))?;
        let certificate = pem::certificates(stored.get("tls.crt")).into_iter().next()?;
        let (trust, bridges) = (pem::certificates(stored.get("ca.crt")), pem::certificates(stored.get(BRIDGES)));
        let is_sound = certificate.is_authority && certificate.belongs_to(&key);
        is_sound.then_some(Self { certificate, key, trust, bridges })
    }

    /// Returns a successor, signed by this authority.
    fn succeeded(self, criteria: &RenewalCriteria) -> Result<Self, IssueError> {
        let (certificate, key) = fresh(criteria)?;
        let mut bridges = self.bridges.clone();
        if self.certificate.not_after > criteria.now {
            let mut params = params(criteria);
            params.not_after = params.not_after.min(self.certificate.not_after);
            params.use_authority_key_identifier_extension = true;
            let bridge = params.signed_by(&key, &self.issuer()?).map_err(IssueError::Make)?;
            bridges.insert(0, Certificate::parse(bridge.der()).ok_or(IssueError::Unreadable)?);
        }
        let trust = [vec![self.certificate], self.trust].concat();
        Ok(Self { certificate, key, trust, bridges })
    }

    fn trusting(mut self, former: Vec<Certificate>, criteria: &RenewalCriteria) -> Self {
        let overlaps = criteria.now < self.certificate.not_before + BACKDATE + OVERLAP;
        let is_of_use =
            |certificate: &Certificate| overlaps && certificate.is_authority && certificate.not_after > criteria.now;
        let mut trust = vec![self.certificate.clone()];
        for other in self.trust.into_iter().chain(former).filter(is_of_use) {
            // Bridges are excluded: they have the key of another certificate, and are not roots.
            if !trust.contains(&other) {
                trust.push(other);
            }
        }
        self.trust = trust;
        self.bridges.retain(is_of_use);
        self
    }

    pub(super) fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, IssueError> {
        Issuer::from_ca_cert_der(&self.certificate.der.as_slice().into(), &self.key).map_err(IssueError::Make)
    }

    pub(super) fn data(&self) -> Data {
        let mut data = BTreeMap::from([
            // Exactly one certificate: kube-controller-manager signs with it.
            ("tls.crt".to_owned(), pem::chain([&self.certificate])),
            ("tls.key".to_owned(), self.key.serialize_pem().into_bytes()),
            ("ca.crt".to_owned(), self.bundle()),
        ]);
        if !self.bridges.is_empty() {
            data.insert(BRIDGES.to_owned(), pem::chain(&self.bridges));
        }
        data
    }

    /// The bundle of trusted certificates.
    pub(super) fn bundle(&self) -> Vec<u8> {
        pem::chain(&self.trust)
    }

    /// The times at which it changes without further cause.
    pub(super) fn changes(&self, is_ours: bool) -> Vec<OffsetDateTime> {
        let mut times = Vec::new();
        if is_ours {
            times.push(due(&self.certificate));
        }
        if self.trust.len() > 1 || !self.bridges.is_empty() {
            times.push(self.certificate.not_before + BACKDATE + OVERLAP);
        }
        times
    }
}

fn is_due(certificate: &Certificate, criteria: &RenewalCriteria) -> bool {
    due(certificate) <= criteria.now || criteria.is_to_be_reissued(certificate)
}

fn fresh(criteria: &RenewalCriteria) -> Result<(Certificate, KeyPair), IssueError> {
    let key = KeyPair::generate().map_err(IssueError::Make)?;
    let made = params(criteria).self_signed(&key).map_err(IssueError::Make)?;
    Ok((Certificate::parse(made.der()).ok_or(IssueError::Unreadable)?, key))
}

/// Each authority has its own name, so that they are never confused.
fn params(criteria: &RenewalCriteria) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("trishanku-ca@{}", criteria.now.unix_timestamp()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = criteria.now - BACKDATE;
    params.not_after = criteria.now + AUTHORITY_LIFE;
    // By default derived from the key: the bridge would have the serial number of the root.
    params.serial_number = Some(SerialNumber::from(criteria.now.unix_timestamp_nanos().to_be_bytes()[8..].to_vec()));
    params
}
