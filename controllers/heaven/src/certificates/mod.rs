//! The certificates of a heaven: computes the desired Secrets from the present ones, without client or clock.
//!
//! | Secret | content |
//! |---|---|
//! | the authority | `tls.crt`, `tls.key`; `ca.crt` with all trusted certificates, its own first; `bridges.crt`, while there are any |
//! | for service accounts | `tls.crt` with all accepted keys, the signing one first; `tls.key`; `next.key`, while there is one |
//! | of kube-apiserver, as a server and as a client | `tls.crt` followed by bridges, `tls.key`, `ca.crt` |
//! | of the administrator, of the controller | the same, and `kubeconfig` |
//!
//! **Renewal** is due after two thirds of the lifetime: ten years for an authority and for service account keys, a year
//! for the others.
//!
//! **Overlap.** Old and new clients and servers accept each other in every combination, see `authority`. Tokens of the
//! former key and of the announced one are accepted, see [`keys`].
//!
//! **User-supplied Secrets**, which lack our label, are read, but never written.

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
use trishanku_heaven_plan::names;

use self::authority::Authority;
use self::keys::Keys;
use self::pair::{Pair, Profile};
use self::pem::Certificate;

/// Keys and values of a Secret.
pub type Data = BTreeMap<String, Vec<u8>>;

/// Lifetime of certificates.
const LIFE: Duration = Duration::days(365);
/// Tolerance for clock differences between the machines of a cluster.
const BACKDATE: Duration = Duration::minutes(5);
/// Key of the bridges in the authority's Secret.
const BRIDGES: &str = "bridges.crt";
/// Key of the announced signing key in the Secret for service accounts.
const NEXT: &str = "next.key";
/// kube-apiserver's own service address: the first one of [`SERVICE_RANGE`](trishanku_heaven_plan::plan::SERVICE_RANGE).
const SERVICE_ADDRESS: &str = "10.32.0.1";

/// Conditions of renewal.
#[derive(Clone, Copy, Debug)]
pub struct RenewalCriteria {
    /// The present time.
    pub now: OffsetDateTime,
    /// Certificates from before this time are reissued.
    pub reissue_before: Option<OffsetDateTime>,
}

impl RenewalCriteria {
    fn is_to_be_reissued(&self, certificate: &Certificate) -> bool {
        self.reissue_before.is_some_and(|time| certificate.not_before + BACKDATE < time)
    }
}

/// A present Secret.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Its values.
    pub data: Data,
    /// Whether this controller created it.
    pub is_ours: bool,
}

/// The purpose of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The authority that signs the others.
    Authority,
    /// Keys for service account tokens.
    ServiceAccounts,
    /// The certificate of kube-apiserver.
    Kubernetes,
    /// An administrator's credentials.
    Admin,
    /// The controller's credentials.
    Controller,
}

impl Role {
    /// The value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Authority => "certificate-authority",
            Self::ServiceAccounts => "service-accounts",
            Self::Kubernetes => "kubernetes",
            Self::Admin => "admin",
            Self::Controller => "controller",
        }
    }

    /// The keys that a user-supplied Secret must have.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Authority => &["tls.crt"],
            Self::ServiceAccounts => &["tls.crt", "tls.key"],
            Self::Kubernetes => &["tls.crt", "tls.key", "ca.crt"],
            Self::Admin | Self::Controller => &["kubeconfig"],
        }
    }
}

/// The user of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Option<String>,
}

/// A desired Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its purpose.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its values.
    pub data: Data,
    /// Whether nothing of an earlier Secret could be kept.
    pub is_new: bool,
}

/// Omits the values.
impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("role", &self.role).field("name", &self.name).finish_non_exhaustive()
    }
}

/// The desired Secrets of a heaven.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The Secrets that this controller writes, in order.
    pub secrets: Vec<Wanted>,
    /// When the next change is due.
    pub look_again: Option<OffsetDateTime>,
    /// Changes when programs must restart, since they read some of the certificates only once.
    pub fingerprint: String,
    /// User-supplied Secrets with expired certificates.
    pub expired: Vec<String>,
}

/// Why certificates cannot be issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// A user-supplied authority is unusable.
    #[error("Secret {secret:?} {problem}; or supply all other Secrets with certificates, too")]
    Authority {
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A user-supplied Secret lacks a key.
    #[error("Secret {secret:?} has no key {key:?}: add it, or delete the Secret to have one issued")]
    Incomplete {
        /// The Secret.
        secret: String,
        /// The missing key.
        key: &'static str,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate: {0}")]
    Make(#[source] rcgen::Error),
    /// An issued certificate cannot be parsed.
    #[error("cannot parse an issued certificate")]
    Unreadable,
}

/// Computes the desired Secrets from the present ones.
///
/// Costs some hundred microseconds for each signature that is made or verified.
///
/// # Errors
/// [`IssueError`].
pub fn issue(
    names: &names::Certificates,
    controller: Option<&User>,
    stored: &BTreeMap<&str, Stored>,
    criteria: &RenewalCriteria,
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
    let authority = authority(names, stored, criteria);
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
                supplied(role, name, theirs, criteria, &mut issued.expired)?;
                if matters(role) {
                    let key = role.keys().last().copied().unwrap_or_default();
                    fingerprint.update(theirs.data.get(key).map_or(&[][..], Vec::as_slice));
                }
            }
            found => {
                let authority = authority.as_ref().map_err(IssueError::again)?;
                let data = found.map(|found| &found.data);
                let data = if role == Role::ServiceAccounts {
                    let keys = Keys::of(data, &profile, authority, criteria)?;
                    times.extend(keys.changes());
                    keys.certificates().for_each(|certificate| fingerprint.update(&certificate.der));
                    keys.data()
                } else {
                    let pair = Pair::ours(data, &profile, authority, criteria)?;
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
    issued.look_again = times.into_iter().filter(|time| *time > criteria.now).min();
    let digest: [u8; 32] = fingerprint.finalize().into();
    let (first, _) = digest.split_first_chunk().expect("a digest has more than eight bytes");
    issued.fingerprint = format!("{:016x}", u64::from_be_bytes(*first));
    Ok(issued)
}

/// Whether programs read it only once: kube-apiserver reloads its own certificate when it changes, but clients and token
/// signers do not.
fn matters(role: Role) -> bool {
    matches!(role, Role::ServiceAccounts | Role::Controller)
}

fn authority(
    names: &names::Certificates,
    stored: &BTreeMap<&str, Stored>,
    criteria: &RenewalCriteria,
) -> Result<Authority, IssueError> {
    let kubernetes = stored.get(names.kubernetes.as_str());
    let former =
        pem::certificates(kubernetes.filter(|stored| stored.is_ours).and_then(|stored| stored.data.get("ca.crt")));
    match stored.get(names.authority.as_str()) {
        Some(theirs) if !theirs.is_ours => Authority::theirs(&names.authority, &theirs.data, former, criteria),
        ours => Authority::ours(ours.map(|ours| &ours.data), former, criteria),
    }
}

fn supplied(
    role: Role,
    name: &str,
    theirs: &Stored,
    criteria: &RenewalCriteria,
    expired: &mut Vec<String>,
) -> Result<(), IssueError> {
    if let Some(key) = role.keys().iter().find(|key| !theirs.data.contains_key(**key)) {
        return Err(IssueError::Incomplete { secret: name.to_owned(), key });
    }
    let certificates = pem::certificates(theirs.data.get("tls.crt"));
    if role != Role::ServiceAccounts && certificates.first().is_some_and(|first| first.not_after <= criteria.now) {
        expired.push(name.to_owned());
    }
    Ok(())
}

/// The time of renewal: after two thirds of the lifetime.
fn due(certificate: &Certificate) -> OffsetDateTime {
    certificate.not_before + (certificate.not_after - certificate.not_before) * 2 / 3
}

fn service_accounts() -> Profile {
    // The expiry is never checked.
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
    /// Clones the error: several Secrets may fail for the same reason.
    fn again(&self) -> Self {
        match self {
            Self::Authority { secret, problem } => Self::Authority { secret: secret.clone(), problem },
            Self::Incomplete { secret, key } => Self::Incomplete { secret: secret.clone(), key },
            Self::Make(error) => Self::Make(error.clone()),
            Self::Unreadable => Self::Unreadable,
        }
    }
}
