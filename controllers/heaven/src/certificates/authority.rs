//! Who signs, and whom everybody trusts.
//!
//! When an authority is replaced, its successor is signed by it once: this *bridge* goes with everything that the successor signs. So whoever trusts the
//! old one alone finds a way to the new one's certificates, and whoever has the new bundle trusts both. There is no order in which anything
//! has to be restarted.

use std::collections::BTreeMap;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};
use time::{Duration, OffsetDateTime};

use super::pem::{self, Certificate};
use super::{BACKDATE, BRIDGES, Data, IssueError, LIFE, Terms, due};

/// How long an authority lasts.
const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// Whoever began with an old authority has ended or been renewed after this time.
const OVERLAP: Duration = LIFE;

pub(super) struct Authority {
    pub(super) certificate: Certificate,
    key: KeyPair,
    /// What is trusted: its own first.
    pub(super) trust: Vec<Certificate>,
    /// Its successors' and its own, signed by predecessors.
    pub(super) bridges: Vec<Certificate>,
}

impl Authority {
    /// The one that is there, or another one if it is not sound, or is due. `former`: what was trusted, if there is none.
    pub(super) fn ours(stored: Option<&Data>, former: Vec<Certificate>, terms: &Terms) -> Result<Self, IssueError> {
        let authority = match stored.and_then(Self::read) {
            Some(sound) if is_due(&sound.certificate, terms) => sound.succeeded(terms)?,
            Some(sound) => sound,
            None => {
                let (certificate, key) = fresh(terms)?;
                Self { certificate, key, trust: Vec::new(), bridges: Vec::new() }
            }
        };
        Ok(authority.trusting(former, terms))
    }

    /// Somebody else's, which is taken as it is.
    pub(super) fn theirs(
        secret: &str,
        stored: &Data,
        former: Vec<Certificate>,
        terms: &Terms,
    ) -> Result<Self, IssueError> {
        let unusable = |problem| IssueError::Authority { secret: secret.to_owned(), problem };
        let authority = Self::read(stored).ok_or_else(|| {
            unusable("has no certificate of an authority in tls.crt with its private key (RSA or ECDSA, PKCS #8, or PKCS #1 for RSA) in tls.key")
        })?;
        if authority.certificate.not_after <= terms.now {
            return Err(unusable("has a certificate that has expired: put a new one there"));
        }
        Ok(authority.trusting(former, terms))
    }

    fn read(stored: &Data) -> Option<Self> {
        let key = pem::key(stored.get("tls.key"))?;
        let certificate = pem::certificates(stored.get("tls.crt")).into_iter().next()?;
        let (trust, bridges) = (pem::certificates(stored.get("ca.crt")), pem::certificates(stored.get(BRIDGES)));
        let is_sound = certificate.is_authority && certificate.belongs_to(&key);
        is_sound.then_some(Self { certificate, key, trust, bridges })
    }

    /// Another one, which it vouches for.
    fn succeeded(self, terms: &Terms) -> Result<Self, IssueError> {
        let (certificate, key) = fresh(terms)?;
        let mut bridges = self.bridges.clone();
        if self.certificate.not_after > terms.now {
            let mut params = params(terms);
            params.not_after = params.not_after.min(self.certificate.not_after);
            params.use_authority_key_identifier_extension = true;
            let bridge = params.signed_by(&key, &self.issuer()?).map_err(IssueError::Make)?;
            bridges.insert(0, Certificate::parse(bridge.der()).ok_or(IssueError::Unreadable)?);
        }
        let trust = [vec![self.certificate], self.trust].concat();
        Ok(Self { certificate, key, trust, bridges })
    }

    fn trusting(mut self, former: Vec<Certificate>, terms: &Terms) -> Self {
        let overlaps = terms.now < self.certificate.not_before + BACKDATE + OVERLAP;
        let is_of_use =
            |certificate: &Certificate| overlaps && certificate.is_authority && certificate.not_after > terms.now;
        let mut trust = vec![self.certificate.clone()];
        for other in self.trust.into_iter().chain(former).filter(is_of_use) {
            // A bridge has the key of another one, and is no root.
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
            // Exactly one: kube-controller-manager signs with it.
            ("tls.crt".to_owned(), pem::chain([&self.certificate])),
            ("tls.key".to_owned(), self.key.serialize_pem().into_bytes()),
            ("ca.crt".to_owned(), self.bundle()),
        ]);
        if !self.bridges.is_empty() {
            data.insert(BRIDGES.to_owned(), pem::chain(&self.bridges));
        }
        data
    }

    /// All that is trusted.
    pub(super) fn bundle(&self) -> Vec<u8> {
        pem::chain(&self.trust)
    }

    /// When something about it changes by itself.
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

fn is_due(certificate: &Certificate, terms: &Terms) -> bool {
    due(certificate) <= terms.now || terms.is_to_be_reissued(certificate)
}

fn fresh(terms: &Terms) -> Result<(Certificate, KeyPair), IssueError> {
    let key = KeyPair::generate().map_err(IssueError::Make)?;
    let made = params(terms).self_signed(&key).map_err(IssueError::Make)?;
    Ok((Certificate::parse(made.der()).ok_or(IssueError::Unreadable)?, key))
}

/// Each has a name of its own, so that nobody takes one for another.
fn params(terms: &Terms) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("trishanku-ca@{}", terms.now.unix_timestamp()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = terms.now - BACKDATE;
    params.not_after = terms.now + AUTHORITY_LIFE;
    // Made of the key unless it is said: the bridge would have that of the root.
    params.serial_number = Some(SerialNumber::from(terms.now.unix_timestamp_nanos().to_be_bytes()[8..].to_vec()));
    params
}
