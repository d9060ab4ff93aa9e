//! Which keys a commit may change, judged by its subject.
//!
//! A store's commits name every key that they change, or the first part of its path (`docs/design/git.md`, *Commits*). So the
//! subject of most of them rules a key out without reading a tree. Subjects of other commits say nothing.

use gitcd_core::path;

/// A key as commit subjects name it.
pub(super) struct Named {
    path: String,
    /// The first part of the path.
    component: String,
}

impl Named {
    /// Creates it from a key without the prefix; `None` if its path is ambiguous in a subject.
    pub(super) fn new(relative: &[u8]) -> Option<Self> {
        let names: Vec<_> = path::encode(relative).map(|name| name.to_vec()).collect();
        let path = String::from_utf8(names.join(&b'/')).ok()?;
        let component = path.split('/').next()?.to_owned();
        (!path.contains([' ', ','])).then_some(Self { path, component })
    }

    /// Returns whether a store's commit with this subject may change the key.
    pub(super) fn may_be_in(&self, subject: &str) -> bool {
        subject.split(", ").any(|part| match part.split_once(' ') {
            Some(("create" | "update" | "delete", what)) => match what.split_once(' ') {
                // A count and a component, or a name with a space.
                Some((_, component)) => component == self.component,
                None => what.strip_suffix("/%value").unwrap_or(what) == self.path || what == self.path,
            },
            // "and 3 more", or an unknown word. A comma within an external name does no harm.
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gitcd_repo::message::{Subject, Verb};

    #[test]
    fn a_key_that_was_changed_is_never_ruled_out_and_most_others_are() {
        let keys =
            ["pods/a/b", "pods/a", "pods", "x", "services/specs/n/web", "a, create b", "a b", "and 3 more", "a~b"];
        let many: Vec<String> = (0..40).map(|n| format!("kind{n}/x")).collect();
        for (at, key) in keys.iter().enumerate() {
            let Some(named) = Named::new(key.as_bytes()) else {
                assert!(key.contains([' ', ',']), "{key}");
                continue;
            };
            let parts: Vec<_> =
                path::encode(key.as_bytes()).map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
            let own = parts.join("/");
            for others in [&keys[..0], &keys[at + 1..], &keys[..at], &keys[..]] {
                for more in [0, 5, 40] {
                    for suffix in ["", "/%value"] {
                        let mut subject = Subject::default();
                        for other in others.iter().map(ToString::to_string).chain(many[..more].iter().cloned()) {
                            subject.add(Verb::Delete, &other);
                        }
                        subject.add(Verb::Update, &(own.clone() + suffix));
                        assert!(named.may_be_in(&subject.text()), "{key}: {}", subject.text());
                    }
                }
            }
        }
        let named = Named::new(b"pods/n/a").unwrap();
        for other in
            ["update pods/n/b", "create 3 leases, delete pods/n/ab", "update x/pods/n/a", "create secrets/n/a/%value"]
        {
            assert!(!named.may_be_in(other), "{other}");
        }
        for unknown in ["create 2 pods", "merge x and y", "delete a, and 3 more", ""] {
            assert!(named.may_be_in(unknown), "{unknown}");
        }
    }
}
