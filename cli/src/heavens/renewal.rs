//! Certificates that are made anew while heavens run.

use std::path::PathBuf;

use time::OffsetDateTime;
use trishanku_api::TrishankuHeavenSpec;

use super::secrets::{SecretError, Secrets, write};
use super::servers::kubeconfigs;
use super::site::Site;

/// A value of a Secret as a file of a heaven.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) secret: String,
    pub(super) key: String,
    pub(super) path: PathBuf,
    pub(super) site: Site,
    /// Whether the user's containers read it, who knows when. kube-apiserver reads its files again when they change.
    pub(super) is_users: bool,
}

/// Looks after the certificates of heavens.
pub struct Renewal {
    pub(super) secrets: Secrets,
    /// Those whose certificates are made here.
    pub(super) heavens: Vec<(String, TrishankuHeavenSpec)>,
    pub(super) copies: Vec<Shown>,
    /// The person's kubeconfig, and whose it is.
    pub(super) persons: Option<(PathBuf, PathBuf)>,
    /// When something is due.
    pub(super) due: Option<OffsetDateTime>,
}

/// Without values of Secrets.
impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal").field("due", &self.due).finish_non_exhaustive()
    }
}

/// What was made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Secrets.
    pub issued: Vec<String>,
    /// Heavens whose containers have to begin anew, since they may have read something only once.
    pub heavens: Vec<String>,
}

impl Renewal {
    /// When something is due.
    #[must_use]
    pub fn due(&self) -> Option<OffsetDateTime> {
        self.due
    }

    /// The person's kubeconfig follows that of a heaven.
    pub fn follow(&mut self, from: PathBuf, to: PathBuf) {
        self.persons = Some((from, to));
    }

    /// Makes what is due, and brings it to where it is read.
    ///
    /// # Errors
    /// See [`SecretError`]. What was made until then is used by the next call.
    pub fn renew(&mut self) -> Result<Renewed, SecretError> {
        let mut renewed = Renewed::default();
        let mut due = None;
        for (name, spec) in &self.heavens {
            let made = self.secrets.issue(name, spec)?;
            renewed.issued.extend(made.secrets);
            due = due.into_iter().chain(made.look_again).min();
        }
        // All of them: of an earlier call that failed half-way, too.
        for copy in &self.copies {
            let data = kubeconfigs(&copy.site, self.secrets.get(&copy.secret, &copy.site.name)?);
            let Some(content) = data.get(&copy.key) else { continue };
            let has_changed = write(&copy.path, content, 0o600)?;
            if has_changed && copy.is_users && !renewed.heavens.contains(&copy.site.name) {
                renewed.heavens.push(copy.site.name.clone());
            }
        }
        if let Some((from, to)) = &self.persons {
            let content = std::fs::read(from).map_err(|source| SecretError::File { path: from.clone(), source })?;
            write(to, &content, 0o600)?;
        }
        self.due = due;
        Ok(renewed)
    }
}
