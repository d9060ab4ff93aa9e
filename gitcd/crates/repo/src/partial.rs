//! Partial clones: repositories that fetch objects on demand (`git clone --filter`), so objects that are reachable may be missing.
//!
//! Source: Git's `Documentation/technical/partial-clone.adoc`.

use std::fs;
use std::path::Path;

use git2::Config;

use crate::alternates;

/// Returns whether the repository in this Git directory is a partial clone, or reads objects of one: then reachability cannot be
/// computed, and it is not known which objects are needed.
///
/// Current versions of Git only set `remote.<name>.promisor`, older ones `extensions.partialClone`. What was fetched on demand stays
/// in packs with a file `.promisor`, also if the configuration is changed later. Costs reading the configuration and a list of the packs.
pub fn is_partial(git_dir: &Path) -> bool {
    Config::open(&git_dir.join("config")).is_ok_and(|config| is_configured(&config))
        || alternates::folders(git_dir).iter().any(|objects| has_promisor_pack(objects))
}

fn is_configured(config: &Config) -> bool {
    if config.get_entry("extensions.partialclone").is_ok() {
        return true;
    }
    let Ok(entries) = config.entries(Some(r"^remote\..*\.promisor$")) else { return false };
    let mut found = false;
    let read = entries.for_each(|entry| {
        // Without a value, it is true. If the value is not a boolean, Git does not use the repository.
        let value = entry.has_value().then(|| entry.value().ok()).flatten();
        found |= value.is_none_or(|value| Config::parse_bool(value).unwrap_or(true));
    });
    found || read.is_err()
}

/// Returns whether a folder of objects has a pack with objects that refer to missing ones.
fn has_promisor_pack(objects: &Path) -> bool {
    let files = fs::read_dir(objects.join("pack")).into_iter().flatten().flatten();
    files.map(|file| file.path()).any(|path| path.extension().is_some_and(|extension| extension == "promisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_clone_is_recognized_by_its_configuration_or_its_packs() {
        let folder = tempfile::tempdir().unwrap();
        let [partial, other] = ["partial", "other"].map(|name| folder.path().join(name));
        for path in [&partial, &other] {
            git2::Repository::init_bare(path).unwrap();
            assert!(!is_partial(path));
        }
        let config = partial.join("config");
        let text = fs::read_to_string(&config).unwrap();
        for (added, expected) in [
            ("[remote \"origin\"]\n\turl = /elsewhere\n\tpromisor = true\n\tpartialclonefilter = blob:none\n", true),
            ("[remote \"a.b\"]\n\tpromisor\n", true),
            ("[remote \"origin\"]\n\turl = /elsewhere\n\tpromisor = false\n", false),
            ("[remote \"promisor\"]\n\turl = /elsewhere\n", false),
            ("[extensions]\n\tpartialClone = origin\n", true),
        ] {
            fs::write(&config, format!("{text}{added}")).unwrap();
            assert_eq!(is_partial(&partial), expected, "{added}");
        }
        fs::write(&config, text).unwrap();
        assert!(!is_partial(&partial));
        fs::create_dir_all(partial.join("objects/pack")).unwrap();
        fs::write(partial.join("objects/pack/pack-1.promisor"), "").unwrap();
        assert!(is_partial(&partial) && !is_partial(&other));
        fs::create_dir_all(other.join("objects/info")).unwrap();
        fs::write(other.join("objects/info/alternates"), format!("{}\n", partial.join("objects").display())).unwrap();
        assert!(is_partial(&other), "it reads objects of a partial clone");
    }
}
