//! The certificates of a heaven: what there should be, made of what there is. No client, no clock.
//!
//! | Secret | what is in it |
//! |---|---|
//! | the authority | `tls.crt`, `tls.key`; `ca.crt` with everybody who is trusted, itself first; `bridges.crt` while there are any |
//! | for service accounts | `tls.crt` with all whose tokens are taken, the one that signs first; `tls.key`; `next.key` while there is one |
//! | of kube-apiserver, as a server and as a client | `tls.crt` with bridges behind it, `tls.key`, `ca.crt` |
//! | of the administrator, of the controller | the same, and `kubeconfig` |
//!
//! **Renewal** is due after two thirds of a life: ten years for an authority and the keys for service accounts, a year for the others.
//!
//! **Overlap.** See [`authority`]: old and new clients and servers get on with one another in every combination; and [`keys`]: tokens are taken that were signed with the
//! former key, or by somebody who has the next one already.
//!
//! **What is somebody else's** (a Secret that does not say that it was made here) is looked at, and never written.

mod authority;
mod keys;
mod kubeconfig;
mod pair;
mod pem;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};
use trishanku_sidecars::names;

use self::authority::Authority;
use self::keys::Keys;
use self::pair::{Pair, Profile};
use self::pem::Certificate;

/// Keys and values of a Secret.
pub type Data = BTreeMap<String, Vec<u8>>;

/// How long certificates last.
const LIFE: Duration = Duration::days(365);
/// Clocks of machines in one cluster differ a little.
const BACKDATE: Duration = Duration::minutes(5);
/// The key of the bridges, in the Secret of the authority.
const BRIDGES: &str = "bridges.crt";
/// That of the key that is going to sign tokens, in the Secret for service accounts.
const NEXT: &str = "next.key";
/// kube-apiserver's own address among those of services: the first of [`SERVICE_RANGE`](trishanku_sidecars::plan::SERVICE_RANGE).
const SERVICE_ADDRESS: &str = "10.32.0.1";

/// Under which conditions certificates are made.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The time.
    pub now: OffsetDateTime,
    /// What was made before is made anew.
    pub reissue_before: Option<OffsetDateTime>,
}

impl Terms {
    fn is_to_be_reissued(&self, certificate: &Certificate) -> bool {
        self.reissue_before.is_some_and(|time| certificate.not_before + BACKDATE < time)
    }
}

/// A Secret that is there.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Its values.
    pub data: Data,
    /// Whether it was made here.
    pub is_ours: bool,
}

/// What a Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Signs the others.
    Authority,
    /// Tokens of service accounts.
    ServiceAccounts,
    /// kube-apiserver.
    Kubernetes,
    /// An administrator.
    Admin,
    /// The controller.
    Controller,
}

impl Role {
    /// As the value of a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authority => "certificate-authority",
            Self::ServiceAccounts => "service-accounts",
            Self::Kubernetes => "kubernetes",
            Self::Admin => "admin",
            Self::Controller => "controller",
        }
    }

    /// What somebody else's has to have.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Authority => &["tls.crt"],
            Self::ServiceAccounts => &["tls.crt", "tls.key"],
            Self::Kubernetes => &["tls.crt", "tls.key", "ca.crt"],
            Self::Admin | Self::Controller => &["kubeconfig"],
        }
    }
}

/// By whom the controller wants to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Option<String>,
}

/// A Secret as it should be.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What it is for.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its values.
    pub data: Data,
    /// Whether there is nothing of it yet that could be kept.
    pub is_new: bool,
}

/// Without its values.
impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("role", &self.role).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What there should be.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Secrets that are ours, in the order in which they are to be written.
    pub secrets: Vec<Wanted>,
    /// When something of it is due.
    pub look_again: Option<OffsetDateTime>,
    /// Changes when programs have to be started anew, since they read some of it only once.
    pub fingerprint: String,
    /// Of Secrets that are not ours: what has expired.
    pub expired: Vec<String>,
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// Somebody else's authority is of no use.
    #[error("Secret {secret:?} {problem}; or supply all other Secrets with certificates, too")]
    Authority {
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Something is missing in somebody else's Secret.
    #[error("Secret {secret:?} has no key {key:?}: add it, or delete the Secret, so that one is made")]
    Incomplete {
        /// The Secret.
        secret: String,
        /// What it does not have.
        key: &'static str,
    },
    /// A certificate cannot be made.
    #[error("cannot issue a certificate: {0}")]
    Make(#[source] rcgen::Error),
    /// What was made cannot be read.
    #[error("cannot parse an issued certificate")]
    Unreadable,
}

/// What there should be, by what is there.
///
/// Costs some hundred microseconds for each signature that is made or checked.
///
/// # Errors
/// [`IssueError`].
pub fn issue(
    names: &names::Certificates,
    controller: Option<&User>,
    stored: &BTreeMap<&str, Stored>,
    terms: &Terms,
) -> Result<Issued, IssueError> {
    let find = |name: &str| stored.get(name);
    let mut wanted = vec![
        (Role::ServiceAccounts, &names.service_accounts, service_accounts()),
        (Role::Kubernetes, &names.kubernetes, kubernetes()),
        (Role::Admin, &names.admin, Profile::client("trishanku-admin", Some("system:masters"))),
    ];
    if let Some(User { name, group }) = controller {
        wanted.push((Role::Controller, &names.controller, Profile::client(name, group.as_deref())));
    }
    let mut issued = Issued { secrets: Vec::new(), look_again: None, fingerprint: String::new(), expired: Vec::new() };
    let (mut times, mut fingerprint) = (Vec::new(), Sha256::new());
    let authority = authority(names, stored, terms);
    if find(&names.authority).is_none_or(|stored| stored.is_ours) {
        let authority = authority.as_ref().map_err(IssueError::again)?;
        times.extend(authority.changes(true));
        let is_new = find(&names.authority).is_none();
        issued.secrets.push(Wanted {
            role: Role::Authority,
            name: names.authority.clone(),
            data: authority.data(),
            is_new,
        });
    }
    for (role, name, profile) in wanted {
        match find(name) {
            Some(theirs) if !theirs.is_ours => {
                supplied(role, name, theirs, terms, &mut issued.expired)?;
                if matters(role) {
                    let key = role.keys().last().copied().unwrap_or_default();
                    fingerprint.update(theirs.data.get(key).map_or(&[][..], Vec::as_slice));
                }
            }
            found => {
                let authority = authority.as_ref().map_err(IssueError::again)?;
                let data = found.map(|found| &found.data);
                let data = if role == Role::ServiceAccounts {
                    let keys = Keys::of(data, &profile, authority, terms)?;
                    times.extend(keys.changes());
                    keys.certificates().for_each(|certificate| fingerprint.update(&certificate.der));
                    keys.data()
                } else {
                    let pair = Pair::ours(data, &profile, authority, terms)?;
                    times.push(due(&pair.certificate));
                    times.extend(authority.changes(false));
                    if matters(role) {
                        fingerprint.update(&pair.certificate.der);
                    }
                    let mut data = pair.data(authority);
                    if matches!(role, Role::Admin | Role::Controller) {
                        let kubeconfig = kubeconfig::of(&data);
                        data.insert("kubeconfig".to_owned(), kubeconfig);
                    }
                    data
                };
                issued.secrets.push(Wanted { role, name: name.clone(), data, is_new: found.is_none() });
            }
        }
    }
    issued.look_again = times.into_iter().filter(|time| *time > terms.now).min();
    let digest: [u8; 32] = fingerprint.finalize().into();
    let (first, _) = digest.split_first_chunk().expect("a digest has more than eight bytes");
    issued.fingerprint = format!("{:016x}", u64::from_be_bytes(*first));
    Ok(issued)
}

/// Whether programs read it only once: kube-apiserver reads its own pair again whenever it changes, clients and signers do not.
fn matters(role: Role) -> bool {
    matches!(role, Role::ServiceAccounts | Role::Controller)
}

fn authority(
    names: &names::Certificates,
    stored: &BTreeMap<&str, Stored>,
    terms: &Terms,
) -> Result<Authority, IssueError> {
    let kubernetes = stored.get(names.kubernetes.as_str());
    let former =
        pem::certificates(kubernetes.filter(|stored| stored.is_ours).and_then(|stored| stored.data.get("ca.crt")));
    match stored.get(names.authority.as_str()) {
        Some(theirs) if !theirs.is_ours => Authority::theirs(&names.authority, &theirs.data, former, terms),
        ours => Authority::ours(ours.map(|ours| &ours.data), former, terms),
    }
}

fn supplied(
    role: Role,
    name: &str,
    theirs: &Stored,
    terms: &Terms,
    expired: &mut Vec<String>,
) -> Result<(), IssueError> {
    if let Some(key) = role.keys().iter().find(|key| !theirs.data.contains_key(**key)) {
        return Err(IssueError::Incomplete { secret: name.to_owned(), key });
    }
    let certificates = pem::certificates(theirs.data.get("tls.crt"));
    if role != Role::ServiceAccounts && certificates.first().is_some_and(|first| first.not_after <= terms.now) {
        expired.push(name.to_owned());
    }
    Ok(())
}

/// After two thirds of its life.
fn due(certificate: &Certificate) -> OffsetDateTime {
    certificate.not_before + (certificate.not_after - certificate.not_before) * 2 / 3
}

fn service_accounts() -> Profile {
    // Nobody looks at its end.
    Profile { life: Duration::days(3650), ..Profile::client("service-accounts", None) }
}

fn kubernetes() -> Profile {
    let names = vec![
        "localhost",
        "127.0.0.1",
        "::1",
        SERVICE_ADDRESS,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    Profile { names, ..Profile::client("kube-apiserver", None) }
}

impl IssueError {
    /// The same once more: what it is about may be needed several times.
    fn again(&self) -> Self {
        match self {
            Self::Authority { secret, problem } => Self::Authority { secret: secret.clone(), problem },
            Self::Incomplete { secret, key } => Self::Incomplete { secret: secret.clone(), key },
            Self::Make(error) => Self::Make(error.clone()),
            Self::Unreadable => Self::Unreadable,
        }
    }
}
