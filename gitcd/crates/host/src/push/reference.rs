//! Names of references that a push may create or move.

use gitcd_sync::lease;

/// Longest name: with the folder of the repository it must remain a path.
pub(super) const MAX_BYTES: usize = 1024;
/// Longest component: with `.lock` it must remain the name of a file.
const MAX_COMPONENT_BYTES: usize = 250;

/// Prefix of gitcd's metadata, which maps commits to revisions.
const METADATA: &str = "refs/gitcd/";
/// Prefix of objects that Git shows instead of others.
const REPLACE: &str = "refs/replace/";

/// Returns whether a name has the form `refs/<kind>/…`, and is one that Git accepts: `git check-ref-format`, and for branches and
/// tags also `git branch` and `git tag`.
pub(super) fn is_valid(name: &str) -> bool {
    let Some((_kind, rest)) = name.strip_prefix("refs/").and_then(|below| below.split_once('/')) else { return false };
    let is_short = name.len() <= MAX_BYTES;
    let is_special = |c: char| c <= ' ' || matches!(c, '\x7f' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    let is_sound = |component: &str| {
        (1..=MAX_COMPONENT_BYTES).contains(&component.len())
            && !component.starts_with('.')
            && component.strip_suffix(".lock").is_none()
    };
    // Commands would take such a branch or tag for an option, or for HEAD itself.
    let misleads = (name.starts_with("refs/heads/") || name.starts_with("refs/tags/"))
        && (rest.starts_with('-') || rest == "HEAD");
    is_short
        && !misleads
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(is_special)
        && name.split('/').all(is_sound)
}

/// Returns what a reference holds that only owners of a repository may push. On a file system that ignores case, names do too.
pub(super) fn owned(name: &str) -> Option<&'static str> {
    let is_below =
        |prefix: &str| name.get(..prefix.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix));
    if is_below(METADATA) {
        Some("gitcd's metadata")
    } else if is_below(REPLACE) {
        Some("replacements of objects")
    } else if lease::is_side_branch(name) {
        // The holder of a writer lease merges it as commits of another gitcd.
        Some("commits of a gitcd that lost its lease")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Whether `git check-ref-format` accepts a name.
    fn git_accepts(name: &str) -> bool {
        Command::new("git").args(["check-ref-format", name]).status().expect("git is installed").success()
    }

    #[test]
    fn names_have_a_kind_and_the_form_that_git_allows() {
        let (component, long) = ("a".repeat(MAX_COMPONENT_BYTES), "a/".repeat(600));
        for good in [
            "refs/heads/main",
            "refs/heads/a/b",
            "refs/heads/@",
            "refs/heads/{",
            "refs/heads/ä",
            "refs/heads/a.lock.b",
            "refs/heads/a-",
            "refs/heads/HEAD/a",
            "refs/notes/commits",
            "refs/gitcd/main",
            "refs/notes/-a",
            &format!("refs/heads/{component}"),
        ] {
            assert!(is_valid(good) && git_accepts(good), "{good}");
        }
        for bad in [
            "",
            "HEAD",
            "main",
            "refs",
            "refs/",
            "refs/HEAD",
            "refs/stash",
            "refs//a",
            "refs/heads",
            "refs/heads/",
            "refs/heads//a",
            "refs/heads/.a",
            "refs/heads/a/.b",
            "refs/heads/../a",
            "refs/heads/a..b",
            "refs/heads/a.",
            "refs/heads/a.lock",
            "refs/heads/a.lock/b",
            "refs/heads/a@{1",
            "refs/heads/a b",
            "refs/heads/a\tb",
            "refs/heads/a\x7fb",
            "refs/heads/a\nb",
            "refs/heads/a~b",
            "refs/heads/a^b",
            "refs/heads/a:b",
            "refs/heads/a?b",
            "refs/heads/a*b",
            "refs/heads/a[b",
            "refs/heads/a\\b",
            "refs/heads/-a",
            "refs/tags/--upload-pack=a",
            "refs/heads/HEAD",
            "objects/heads/a",
            "Refs/heads/a",
            &format!("refs/heads/{component}a"),
            &format!("refs/heads/{long}a"),
        ] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn metadata_and_replacements_belong_to_owners_in_any_case() {
        let side = "refs/heads/main-side-0123456789ab";
        for name in ["refs/gitcd/main", "refs/GITCD/main", "refs/replace/0123", "refs/Replace/x", side] {
            assert!(owned(name).is_some(), "{name}");
        }
        for name in [
            "refs/heads/main",
            "refs/heads/main-side-1",
            "refs/heads/b-side-0123456789abc",
            "refs/gitcd",
            "refs/gitcde/a",
            "refs/replaced/a",
            "refs/gitcdä",
        ] {
            assert!(owned(name).is_none(), "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn git_accepts_every_name(name in "refs/[a@]{1,2}/([a./@{}~*\\[\\\\ :^?\x7f\x01-]|\\.lock|\\.\\.|HEAD){1,6}") {
            prop_assert!(!is_valid(&name) || git_accepts(&name));
            // All others are refused for one of the other reasons, of which this alphabet has none.
            prop_assert!(is_valid(&name) || !git_accepts(&name));
        }
    }
}
