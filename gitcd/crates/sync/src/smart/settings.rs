//! Git settings that require the `git` program for a remote.

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The cached result of the last look at Git's configuration: URL, time, and whether it is special.
#[derive(Debug, Default)]
pub(super) struct Settings(Mutex<Option<(String, Instant, bool)>>);

/// How long a result is cached.
const READ_EVERY: Duration = Duration::from_secs(1);

impl Settings {
    /// Returns whether the repository is shallow, or settings apply that only the program supports: proxies, certificates, URL
    /// rewriting.
    pub(super) fn are_special(&self, repository: &Path, url: &str, now: Instant) -> bool {
        if repository.join("shallow").exists() {
            return true;
        }
        // Cached, because the configuration is in several files, and there may be many exchanges per second.
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
            // Settings for all URLs, or for those with this prefix.
            "http" => rest.rsplit_once('.').is_none_or(|(of, _)| of.contains('*') || url.starts_with(of)),
            "url" => url.starts_with(value),
            // Checks of objects that this process does not make.
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
    fn a_change_of_the_configuration_counts_after_a_second_or_for_another_url() {
        const URL: &str = "http://127.0.0.1:1/up.git";
        let folder = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(folder.path()).unwrap();
        if has_settings(folder.path(), URL).unwrap() {
            // The developer's own settings apply to all repositories.
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
