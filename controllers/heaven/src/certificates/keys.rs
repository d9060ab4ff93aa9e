//! The keys that sign service account tokens, and their rotation.
//!
//! kube-apiserver reads the keys only once, and several may share them. So a new key is first *announced*: every
//! kube-apiserver accepts its tokens, but none signs with it. After [`ANNOUNCED`], when all have restarted, it signs.
//! Tokens of the former key are accepted until they have expired.
//!
//! The certificates only carry the keys: kube-apiserver extracts the key, and ignores issuer and expiry. Their start time
//! shows since when a key has been announced or has been signing.

use rcgen::KeyPair;
use time::{Duration, OffsetDateTime};

use super::authority::Authority;
use super::pair::{Pair, Profile};
use super::pem::{self, Certificate};
use super::{BACKDATE, Data, IssueError, NEXT, RenewalCriteria};

/// How long a key signs, unless a new one is requested earlier.
const LIFE: Duration = Duration::days(3650);
/// All pods that must restart have done so by then.
pub(super) const ANNOUNCED: Duration = Duration::days(1);
/// kube-apiserver extends tokens of pods to a year; pods request new ones much earlier.
pub(super) const OVERLAP: Duration = Duration::days(366);

pub(super) struct Keys {
    /// The signing key.
    current: Pair,
    /// The announced key.
    next: Option<Pair>,
    /// Keys that signed before, latest first.
    former: Vec<Certificate>,
}

impl Keys {
    /// Returns the stored keys, rotated if the time or the criteria demand it.
    pub(super) fn of(
        stored: Option<&Data>,
        profile: &Profile,
        authority: &Authority,
        criteria: &RenewalCriteria,
    ) -> Result<Self, IssueError> {
        let mut current = Pair::lasting(stored, profile, authority, criteria)?;
        let mut others = pem::certificates(stored.and_then(|stored| stored.get("tls.crt")));
        others.retain(|other| !other.is_authority && !current.has_key_of(other));
        let announced = stored.and_then(|stored| pem::key(stored.get(NEXT)));
        let mut next = announced.and_then(|key| Pair::of(key, &others));
        let mut former: Vec<_> =
            others.into_iter().filter(|other| next.as_ref().is_none_or(|next| !next.has_key_of(other))).collect();
        // An announced key that is to be replaced is dropped: it has signed nothing.
        next = next.filter(|next| !criteria.is_to_be_reissued(&next.certificate));
        if let Some(next) = next.take_if(|next| began(&next.certificate) + ANNOUNCED <= criteria.now) {
            former.insert(0, current.certificate);
            current = next.again(profile, authority, criteria)?;
        }
        let is_due = began(&current.certificate) + LIFE * 2 / 3 <= criteria.now;
        if next.is_none() && (is_due || criteria.is_to_be_reissued(&current.certificate)) {
            next = Some(Pair::issued(KeyPair::generate().map_err(IssueError::Make)?, profile, authority, criteria)?);
        }
        let mut keys = Self { current, next, former };
        let of_use = keys.ends().take_while(|end| *end > criteria.now).count();
        keys.former.truncate(of_use);
        Ok(keys)
    }

    /// The times at which the tokens of each former key have expired.
    fn ends(&self) -> impl Iterator<Item = OffsetDateTime> {
        let successors = std::iter::once(&self.current.certificate).chain(&self.former);
        successors.zip(&self.former).map(|(successor, _)| began(successor) + OVERLAP)
    }

    /// The certificates of all accepted keys; the signing one first.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|next| &next.certificate);
        std::iter::once(&self.current.certificate).chain(&self.former).chain(next)
    }

    /// The Secret: `tls.crt` has all accepted keys.
    pub(super) fn data(&self) -> Data {
        let mut data = Data::from([
            ("tls.crt".to_owned(), pem::chain(self.certificates())),
            ("tls.key".to_owned(), self.current.key()),
        ]);
        data.extend(self.next.as_ref().map(|next| (NEXT.to_owned(), next.key())));
        data
    }

    /// The times at which the keys change without further cause.
    pub(super) fn changes(&self) -> Vec<OffsetDateTime> {
        let change = match &self.next {
            Some(next) => began(&next.certificate) + ANNOUNCED,
            None => began(&self.current.certificate) + LIFE * 2 / 3,
        };
        std::iter::once(change).chain(self.ends()).collect()
    }
}

fn began(certificate: &Certificate) -> OffsetDateTime {
    certificate.not_before + BACKDATE
}
