//! Renews certificates while heavens run.

use std::path::PathBuf;

use time::OffsetDateTime;
use trishanku_api::TrishankuHeavenSpec;

use super::render_context::SecretFile;
use super::secrets::{SecretError, Secrets, write};
use super::servers::kubeconfigs;

/// Renews the certificates of heavens.
pub struct Renewal {
    pub(super) secrets: Secrets,
    /// The heavens whose certificates are issued here.
    pub(super) heavens: Vec<(String, TrishankuHeavenSpec)>,
    pub(super) copies: Vec<SecretFile>,
    /// Source and path of the user's kubeconfig.
    pub(super) persons: Option<(PathBuf, PathBuf)>,
    /// When the next renewal is due.
    pub(super) due: Option<OffsetDateTime>,
}

/// Omits values of Secrets.
impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal").field("due", &self.due).finish_non_exhaustive()
    }
}

/// The result of a renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The Secrets that were renewed.
    pub issued: Vec<String>,
    /// Heavens whose containers must restart, since they may have read a file only once.
    pub heavens: Vec<String>,
}

impl Renewal {
    /// When the next renewal is due.
    #[must_use]
    pub fn due(&self) -> Option<OffsetDateTime> {
        self.due
    }

    /// Keeps the user's kubeconfig `to` a copy of `from`.
    pub fn follow(&mut self, from: PathBuf, to: PathBuf) {
        self.persons = Some((from, to));
    }

    /// Renews what is due, and updates the files.
    ///
    /// # Errors
    /// See [`SecretError`]. The next call continues with the Secrets issued so far.
    pub fn renew(&mut self) -> Result<Renewed, SecretError> {
        let mut renewed = Renewed::default();
        let mut due = None;
        for (name, spec) in &self.heavens {
            let made = self.secrets.issue(name, spec)?;
            renewed.issued.extend(made.secrets);
            due = due.into_iter().chain(made.look_again).min();
        }
        // All files, since an earlier call may have failed half-way.
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
