//! A key with its certificate, for one server or client.

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use time::Duration;
use x509_parser::extensions::GeneralName;

use super::authority::Authority;
use super::pem::{self, Certificate};
use super::{BACKDATE, Data, IssueError, LIFE, RenewalCriteria, due};

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) common_name: String,
    pub(super) organization: Option<String>,
    /// Host names and addresses of a server.
    pub(super) names: Vec<&'static str>,
    pub(super) life: Duration,
}

pub(super) struct Pair {
    pub(super) certificate: Certificate,
    key: KeyPair,
}

impl Pair {
    /// Returns the stored pair, or a new one if it is invalid, due for renewal, or for another subject.
    pub(super) fn ours(
        stored: Option<&Data>,
        profile: &Profile,
        authority: &Authority,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        let sound = stored.and_then(Self::read).filter(|pair| {
            let certificate = &pair.certificate;
            let lasts = due(certificate) > criteria.now && !criteria.is_to_be_reissued(certificate);
            lasts && certificate.is_signed_by(&authority.certificate) && profile.is_of(certificate)
        });
        match sound {
            Some(pair) => Ok(pair),
            None => Self::issued(KeyPair::generate().map_err(IssueError::Make)?, profile, authority, criteria),
        }
    }

    /// Returns the stored key, whatever its certificate, or a new one: tokens that it signed are in use.
    pub(super) fn lasting(
        stored: Option<&Data>,
        profile: &Profile,
        authority: &Authority,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        if let Some(pair) = stored.and_then(Self::read) {
            return Ok(pair);
        }
        let key = stored.and_then(|stored| pem::key(stored.get("tls.key")));
        let key = key.map_or_else(KeyPair::generate, Ok).map_err(IssueError::Make)?;
        Self::issued(key, profile, authority, criteria)
    }

    /// Combines a key with its own certificate among these.
    pub(super) fn of(key: KeyPair, certificates: &[Certificate]) -> Option<Self> {
        let certificate = certificates.iter().find(|certificate| certificate.belongs_to(&key))?.clone();
        Some(Self { certificate, key })
    }

    /// Issues a certificate for the same key that starts now.
    pub(super) fn again(
        self,
        profile: &Profile,
        authority: &Authority,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        Self::issued(self.key, profile, authority, criteria)
    }

    pub(super) fn has_key_of(&self, certificate: &Certificate) -> bool {
        certificate.belongs_to(&self.key)
    }

    fn read(stored: &Data) -> Option<Self> {
        let key = pem::key(stored.get("tls.key"))?;
        let certificate = pem::certificates(stored.get("tls.crt")).into_iter().next()?;
        certificate.belongs_to(&key).then_some(Self { certificate, key })
    }

    /// Issues a certificate for a key.
    pub(super) fn issued(
        key: KeyPair,
        profile: &Profile,
        authority: &Authority,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        let names: Vec<String> = profile.names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).map_err(IssueError::Make)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, profile.common_name.clone());
        if let Some(organization) = &profile.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization.clone());
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !profile.names.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        params.not_before = criteria.now - BACKDATE;
        // A certificate must not outlast its authority.
        params.not_after = (criteria.now + profile.life).min(authority.certificate.not_after);
        let made = params.signed_by(&key, &authority.issuer()?).map_err(IssueError::Make)?;
        let certificate = Certificate::parse(made.der()).ok_or(IssueError::Unreadable)?;
        Ok(Self { certificate, key })
    }

    /// The private key in PEM.
    pub(super) fn key(&self) -> Vec<u8> {
        self.key.serialize_pem().into_bytes()
    }

    /// The Secret, with the chain from the certificate to every authority that programs may trust.
    pub(super) fn data(&self, authority: &Authority) -> Data {
        let chain = pem::chain(std::iter::once(&self.certificate).chain(&authority.bridges));
        Data::from([
            ("tls.crt".to_owned(), chain),
            ("tls.key".to_owned(), self.key()),
            ("ca.crt".to_owned(), authority.bundle()),
        ])
    }
}

impl Profile {
    /// The profile of a client.
    pub(super) fn client(common_name: &str, organization: Option<&str>) -> Self {
        let (common_name, organization) = (common_name.to_owned(), organization.map(ToOwned::to_owned));
        Self { common_name, organization, names: Vec::new(), life: LIFE }
    }

    fn is_of(&self, certificate: &Certificate) -> bool {
        certificate.read(|parsed| {
            let subject = parsed.subject();
            let common_name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
            let organization = subject.iter_organization().next().and_then(|name| name.as_str().ok());
            let extension = parsed.subject_alternative_name().ok().flatten();
            let known: Vec<String> =
                extension.iter().flat_map(|found| &found.value.general_names).filter_map(shown).collect();
            common_name == Some(&self.common_name)
                && organization == self.organization.as_deref()
                && self.names.iter().all(|name| known.iter().any(|known| known == name))
        })
    }
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv4Addr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}
