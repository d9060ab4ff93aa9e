//! The keys that sign tokens of service accounts, and how one follows another.
//!
//! kube-apiserver reads them once, and there may be many that share them. So a new key is *announced* first: everybody takes what it signs, and nobody signs with it. After
//! [`ANNOUNCED`] it signs, when every kube-apiserver has begun anew with it. What the former one signed is taken until it has ended.
//!
//! A certificate is only what a key is carried in: kube-apiserver takes the key out of it, and does not ask who signed it or how long it lasts. Its beginning tells since
//! when a key is announced, or signs.

use rcgen::KeyPair;
use time::{Duration, OffsetDateTime};

use super::authority::Authority;
use super::pair::{Pair, Profile};
use super::pem::{self, Certificate};
use super::{BACKDATE, Data, IssueError, NEXT, Terms};

/// How long a key signs, if nobody asks for another one sooner.
const LIFE: Duration = Duration::days(3650);
/// By then every pod has begun anew that had to.
pub(super) const ANNOUNCED: Duration = Duration::days(1);
/// kube-apiserver lets a pod's token count for a year, and a pod asks for another one long before.
pub(super) const OVERLAP: Duration = Duration::days(366);

pub(super) struct Keys {
    /// Signs.
    current: Pair,
    /// Is going to.
    next: Option<Pair>,
    /// Signed once, the latest first.
    former: Vec<Certificate>,
}

impl Keys {
    /// Those that are there, with what the time and the terms make of them.
    pub(super) fn of(
        stored: Option<&Data>,
        profile: &Profile,
        authority: &Authority,
        terms: &Terms,
    ) -> Result<Self, IssueError> {
        let mut current = Pair::lasting(stored, profile, authority, terms)?;
        let mut others = pem::certificates(stored.and_then(|stored| stored.get("tls.crt")));
        others.retain(|other| !other.is_authority && !current.has_key_of(other));
        let announced = stored.and_then(|stored| pem::key(stored.get(NEXT)));
        let mut next = announced.and_then(|key| Pair::of(key, &others));
        let mut former: Vec<_> =
            others.into_iter().filter(|other| next.as_ref().is_none_or(|next| !next.has_key_of(other))).collect();
        // Of what was made before that time nothing is to be used any more; it has signed nothing.
        next = next.filter(|next| !terms.is_to_be_reissued(&next.certificate));
        if let Some(next) = next.take_if(|next| began(&next.certificate) + ANNOUNCED <= terms.now) {
            former.insert(0, current.certificate);
            current = next.again(profile, authority, terms)?;
        }
        let is_due = began(&current.certificate) + LIFE * 2 / 3 <= terms.now;
        if next.is_none() && (is_due || terms.is_to_be_reissued(&current.certificate)) {
            next = Some(Pair::issued(KeyPair::generate().map_err(IssueError::Make)?, profile, authority, terms)?);
        }
        let mut keys = Self { current, next, former };
        let of_use = keys.ends().take_while(|end| *end > terms.now).count();
        keys.former.truncate(of_use);
        Ok(keys)
    }

    /// When what each of the former ones signed has ended.
    fn ends(&self) -> impl Iterator<Item = OffsetDateTime> {
        let successors = std::iter::once(&self.current.certificate).chain(&self.former);
        successors.zip(&self.former).map(|(successor, _)| began(successor) + OVERLAP)
    }

    /// All whose tokens are taken, the one that signs first.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|next| &next.certificate);
        std::iter::once(&self.current.certificate).chain(&self.former).chain(next)
    }

    /// The Secret: `tls.crt` has all keys whose tokens are taken.
    pub(super) fn data(&self) -> Data {
        let mut data = Data::from([
            ("tls.crt".to_owned(), pem::chain(self.certificates())),
            ("tls.key".to_owned(), self.current.key()),
        ]);
        data.extend(self.next.as_ref().map(|next| (NEXT.to_owned(), next.key())));
        data
    }

    /// When something about them changes by itself.
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
