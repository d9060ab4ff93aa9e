//! Certificates and keys in PEM.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};
use time::OffsetDateTime;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A certificate, with the fields that are used often.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) der: Vec<u8>,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
    pub(super) is_authority: bool,
    public_key: Vec<u8>,
}

/// Shows only the expiry.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("until", &self.not_after).finish_non_exhaustive()
    }
}

impl Certificate {
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).ok();
        Some(Self {
            der: der.to_vec(),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            is_authority: parsed.is_ca(),
            public_key: parsed.public_key().raw.to_vec(),
        })
    }

    /// Parses the certificate again, to read other fields.
    pub(super) fn read<T>(&self, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (_, parsed) = X509Certificate::from_der(&self.der).expect("it has been parsed before");
        look(&parsed)
    }

    pub(super) fn belongs_to(&self, key: &KeyPair) -> bool {
        self.public_key == key.subject_public_key_info()
    }

    pub(super) fn is_signed_by(&self, issuer: &Self) -> bool {
        issuer.read(|issuer| {
            self.read(|own| own.issuer() == issuer.subject() && own.verify_signature(Some(issuer.public_key())).is_ok())
        })
    }

    pub(super) fn pem(&self) -> String {
        armour("CERTIFICATE", &self.der)
    }
}

/// Concatenates certificates.
pub(super) fn chain<'c>(certificates: impl IntoIterator<Item = &'c Certificate>) -> Vec<u8> {
    certificates.into_iter().map(Certificate::pem).collect::<String>().into_bytes()
}

/// Returns all certificates that can be parsed.
pub(super) fn certificates(text: Option<&Vec<u8>>) -> Vec<Certificate> {
    let blocks = Pem::iter_from_buffer(text.map_or(&[], Vec::as_slice)).filter_map(Result::ok);
    blocks
        .filter(|block| block.label == "CERTIFICATE")
        .filter_map(|block| Certificate::parse(&block.contents))
        .collect()
}

/// Parses a private key: PKCS #8, or PKCS #1 as OpenSSL and Go write it for RSA.
pub(super) fn key(text: Option<&Vec<u8>>) -> Option<KeyPair> {
    let block =
        Pem::iter_from_buffer(text?).filter_map(Result::ok).find(|block| block.label.ends_with("PRIVATE KEY"))?;
    let der = if block.label == "RSA PRIVATE KEY" { wrapped(&block.contents) } else { block.contents };
    KeyPair::try_from(der.as_slice()).ok()
}

/// Wraps PKCS #1 in PKCS #8 (RFC 5208): version, algorithm, and the key as an octet string.
fn wrapped(rsa: &[u8]) -> Vec<u8> {
    const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
    const RSA_ENCRYPTION: [u8; 15] =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    tagged(0x30, &[&VERSION[..], &RSA_ENCRYPTION, &tagged(0x04, rsa)].concat())
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    if content.len() < 0x80 {
        out.push(content.len() as u8);
    } else {
        out.push(0x80 | significant.len() as u8);
        out.extend(significant);
    }
    out.extend(content);
    out
}

fn armour(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
