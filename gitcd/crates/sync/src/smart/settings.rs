//! Whether a remote is left to the `git` program, because Git is configured so.

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What was found when the configuration was last read, and for which URL.
#[derive(Debug, Default)]
pub(super) struct Settings(Mutex<Option<(String, Instant, bool)>>);

/// A change of the configuration counts after this.
const READ_EVERY: Duration = Duration::from_secs(1);

impl Settings {
    /// Whether Git is configured to do something here that only the program does: proxies, certificates, other URLs.
    pub(super) fn are_special(&self, repository: &Path, url: &str, now: Instant) -> bool {
        if repository.join("shallow").exists() {
            return true;
        }
        // Several files, and exchanges may be many in a second.
        let mut known = self.0.lock();
        let fresh = known.as_ref().filter(|(of, at, _)| of == url && now.saturating_duration_since(*at) < READ_EVERY);
        if let Some((.., are_special)) = fresh {
            return *are_special;
        }
        let are_special = has_settings(repository, url).unwrap_or(true);
        *known = Some((url.to_owned(), now, are_special));
        are_special
    }
}

fn has_settings(repository: &Path, url: &str) -> Result<bool, git2::Error> {
    let mut config = git2::Config::open_default()?;
    let own = repository.join("config");
    if own.exists() {
        config.add_file(&own, git2::ConfigLevel::Local, true)?;
    }
    let mut entries = config.entries(None)?;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let (Ok(name), value) = (entry.name(), entry.value().unwrap_or_default()) else { continue };
        let (section, rest) = name.split_once('.').unwrap_or_default();
        let is_special = match section {
            // For all URLs, or those that begin like this.
            "http" => rest.rsplit_once('.').is_none_or(|(of, _)| of.contains('*') || url.starts_with(of)),
            "url" => url.starts_with(value),
            // Somebody wants more to be checked than is checked here.
            "fetch" | "transfer" => rest == "fsckobjects" && value != "false",
            "remote" => rest.rsplit_once('.').is_some_and(|(_, name)| matches!(name, "proxy" | "vcs")),
            _ => false,
        };
        if is_special {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_configuration_counts_after_a_second_and_for_another_url_at_once() {
        const URL: &str = "http://127.0.0.1:1/up.git";
        let folder = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(folder.path()).unwrap();
        if has_settings(folder.path(), URL).unwrap() {
            // The developer's own settings are for all repositories.
            return;
        }
        let (settings, start) = (Settings::default(), Instant::now());
        assert!(!settings.are_special(folder.path(), URL, start));
        repository.config().unwrap().set_str("http.proxy", "http://proxy").unwrap();
        assert!(!settings.are_special(folder.path(), URL, start + READ_EVERY / 2));
        assert!(settings.are_special(folder.path(), "http://127.0.0.1:2/up.git", start));
        assert!(settings.are_special(folder.path(), URL, start + READ_EVERY));
    }

    #[test]
    fn a_shallow_repository_is_left_to_the_program_at_once() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let (settings, start) = (Settings::default(), Instant::now());
        settings.are_special(folder.path(), "http://127.0.0.1:1/up.git", start);
        std::fs::write(folder.path().join("shallow"), "").unwrap();
        assert!(settings.are_special(folder.path(), "http://127.0.0.1:1/up.git", start));
    }
}
