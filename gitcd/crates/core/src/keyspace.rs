//! The placement of each key: in the data tree, with the metadata, or outside Git.
//!
//! ```
//! use gitcd_core::keyspace::{KeySpace, Placement};
//!
//! let keys = KeySpace::new("/registry", ["/registry/events"]);
//! assert_eq!(keys.placement(b"/registry/pods/default/nginx"), Placement::Data);
//! assert_eq!(keys.relative(b"/registry/pods/default/nginx"), b"pods/default/nginx");
//! assert_eq!(keys.placement(b"/registry/events/default/a"), Placement::Ephemeral);
//! assert_eq!(keys.placement(b"compact_rev_key"), Placement::Local);
//! ```

mod recorded;

pub use self::recorded::MalformedKeySpace;

/// The key in which kube-apiserver stores a revision of its own branch. It must never reach another branch.
pub const COMPACT_REVISION_KEY: &[u8] = b"compact_rev_key";

/// Where a key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the data tree, which users read and branches merge.
    Data,
    /// With the metadata: committed, but never merged.
    Local,
    /// Not in Git: only in the journal and the local snapshot.
    Ephemeral,
}

/// The placement of all keys of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    /// The prefix of data keys, with a slash at its end.
    prefix: Vec<u8>,
    ephemeral: Vec<Pattern>,
}

impl KeySpace {
    /// Creates a key space whose data keys start with `prefix` and a slash. Keys that an ephemeral prefix covers are ephemeral,
    /// whether under `prefix` or not.
    ///
    /// Trailing slashes of all prefixes are ignored, so `/` covers every key that starts with a slash. An ephemeral prefix covers
    /// whole components: `/registry/events` covers the key of that name and `/registry/events/a`, but not
    /// `/registry/eventsources`. One that ends with `*` covers every key that starts with the bytes before the star:
    /// `/registry/leases/kube-system/apiserver-*`. An empty one covers nothing.
    pub fn new<E>(prefix: &str, ephemeral: E) -> Self
    where
        E: IntoIterator<Item: AsRef<str>>,
    {
        let ephemeral = ephemeral.into_iter();
        Self {
            prefix: [prefix.trim_end_matches('/'), "/"].concat().into_bytes(),
            ephemeral: ephemeral.filter_map(|pattern| Pattern::parse(pattern.as_ref())).collect(),
        }
    }

    /// Returns the prefix of data keys and the ephemeral prefixes as flag values. [`KeySpace::new`] makes an equal key space of
    /// them, with the latter split at ':'.
    pub fn flags(&self) -> (String, String) {
        let text = |bytes: &[u8]| match bytes.strip_suffix(b"/").unwrap_or(bytes) {
            [] => "/".to_owned(),
            bytes => String::from_utf8_lossy(bytes).into_owned(),
        };
        let ephemeral = self.ephemeral.iter().map(|pattern| match pattern {
            Pattern::Components(start) => text(start),
            Pattern::Bytes(start) => String::from_utf8_lossy(start).into_owned() + "*",
        });
        (text(&self.prefix), ephemeral.collect::<Vec<_>>().join(":"))
    }

    /// Returns disjoint half-open ranges, in order, that contain every ephemeral key, and perhaps other keys. A range without an
    /// end is unbounded.
    pub fn ephemeral_ranges(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut ranges: Vec<_> = self.ephemeral.iter().map(Pattern::range).collect();
        ranges.sort();
        let mut apart: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (start, end) in ranges {
            match apart.last_mut() {
                Some((_, None)) => {}
                Some((_, Some(last))) if start <= *last => match end {
                    Some(end) if end > *last => *last = end,
                    Some(_) => {}
                    None => apart.last_mut().expect("there is one").1 = None,
                },
                _ => apart.push((start, end)),
            }
        }
        apart
    }

    /// Returns the placement of `key`. Takes O(ephemeral prefixes) and allocates nothing.
    pub fn placement(&self, key: &[u8]) -> Placement {
        if key == COMPACT_REVISION_KEY {
            Placement::Local
        } else if self.ephemeral.iter().any(|pattern| pattern.covers(key)) {
            Placement::Ephemeral
        } else if key.starts_with(&self.prefix) {
            Placement::Data
        } else {
            Placement::Local
        }
    }

    /// Returns what follows the prefix and its slash in a data key: the part that its path encodes.
    ///
    /// # Panics
    /// If `key` is not under the prefix; every [`Placement::Data`] key is.
    pub fn relative<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.strip_prefix(self.prefix.as_slice()).expect("the caller asks for data keys only, which have the prefix")
    }

    /// Returns the key whose [`relative`](Self::relative) part is `relative`.
    pub fn absolute(&self, relative: &[u8]) -> Vec<u8> {
        [&self.prefix, relative].concat()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// The key itself, and all keys that continue it with a slash.
    Components(Vec<u8>),
    /// All keys with this prefix.
    Bytes(Vec<u8>),
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            None
        } else if let Some(start) = text.strip_suffix('*') {
            Some(Self::Bytes(start.into()))
        } else {
            Some(Self::Components(text.trim_end_matches('/').into()))
        }
    }

    /// Returns a half-open range that contains all covered keys.
    fn range(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            // '0' follows '/'. The range also contains keys that sort between the key itself and those below it.
            Self::Components(start) => (start.clone(), Some([start, &b"0"[..]].concat())),
            Self::Bytes(start) => {
                let last = start.iter().rposition(|byte| *byte < u8::MAX);
                let end = last.map(|last| [&start[..last], &[start[last] + 1]].concat());
                (start.clone(), end)
            }
        }
    }

    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Self::Components(start) => {
                key.strip_prefix(start.as_slice()).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }
            Self::Bytes(start) => key.starts_with(start),
        }
    }
}

/// Formats one line for each prefix, the same for equal key spaces: a branch records it as the layout it was written with.
impl std::fmt::Display for KeySpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "prefix {}", self.prefix.escape_ascii())?;
        let mut lines: Vec<_> = self.ephemeral.iter().map(ToString::to_string).collect();
        lines.sort();
        lines.dedup();
        lines.iter().try_for_each(|line| writeln!(f, "ephemeral {line}"))
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Components(start) => write!(f, "{}", start.escape_ascii()),
            Self::Bytes(start) => write!(f, "{}*", start.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Placement::{Data, Ephemeral, Local};
    use super::{KeySpace, Placement};

    fn place(prefix: &str, ephemeral: &[&str], key: &str) -> Placement {
        KeySpace::new(prefix, ephemeral).placement(key.as_bytes())
    }

    #[test]
    fn data_keys_are_those_below_the_prefix() {
        for (prefix, key, placement) in [
            ("/registry", "/registry/pods/a/b", Data),
            ("/registry", "/registry/", Data),
            ("/registry", "/registry", Local),
            ("/registry", "/registrypods", Local),
            ("/registry", "registry/pods", Local),
            ("/registry", "", Local),
            ("/registry//", "/registry/pods", Data),
            ("/", "/registry/pods", Data),
            ("/", "/", Data),
            ("/", "a/b", Local),
            ("", "/a", Data),
        ] {
            assert_eq!(place(prefix, &[], key), placement, "{key:?} under {prefix:?}");
        }
    }

    #[test]
    fn an_ephemeral_prefix_covers_whole_components() {
        for (pattern, key, placement) in [
            ("/registry/events", "/registry/events", Ephemeral),
            ("/registry/events", "/registry/events/default/a", Ephemeral),
            ("/registry/events/", "/registry/events/default/a", Ephemeral),
            ("/registry/events", "/registry/eventsources/a", Data),
            ("/registry/events", "/registry/event", Data),
            ("/other", "/other/a", Ephemeral),
            ("/other", "/otherwise", Local),
            ("/", "/registry/pods", Ephemeral),
            ("/", "pods", Local),
            ("", "/registry/pods", Data),
        ] {
            assert_eq!(place("/registry", &[pattern], key), placement, "{key:?}, {pattern:?}");
        }
    }

    #[test]
    fn an_ephemeral_prefix_with_a_star_covers_bytes() {
        let pattern = "/registry/leases/kube-system/apiserver-*";
        for (key, placement) in [
            ("/registry/leases/kube-system/apiserver-x1", Ephemeral),
            ("/registry/leases/kube-system/apiserver-", Ephemeral),
            ("/registry/leases/kube-system/apiserver", Data),
        ] {
            assert_eq!(place("/registry", &["/x", pattern], key), placement);
        }
    }

    #[test]
    fn the_key_of_a_local_revision_is_local_whatever_the_prefixes() {
        for prefix in ["/registry", "", "compact_rev_key"] {
            assert_eq!(place(prefix, &["*", "compact_rev_key"], "compact_rev_key"), Local);
        }
    }

    #[test]
    fn a_key_space_can_be_given_again_as_flags() {
        for (prefix, ephemeral, flags) in [
            ("/registry/", &[][..], ("/registry", "")),
            ("", &["/registry/events/", "/x*", "/"], ("/", "/registry/events:/x*:/")),
            ("a", &["*", ""], ("a", "*")),
        ] {
            let keys = KeySpace::new(prefix, ephemeral);
            let (prefix, ephemeral) = keys.flags();
            assert_eq!((&*prefix, &*ephemeral), flags);
            assert_eq!(KeySpace::new(&prefix, ephemeral.split(':')), keys);
        }
    }

    #[test]
    fn ranges_of_ephemeral_keys_are_merged() {
        let ranges = |ephemeral: &[&str]| KeySpace::new("/", ephemeral).ephemeral_ranges();
        let range = |start: &str, end: &str| (start.as_bytes().to_vec(), Some(end.as_bytes().to_vec()));
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&["/b", "/a"]), [range("/a", "/a0"), range("/b", "/b0")]);
        assert_eq!(ranges(&["/a/b", "/a", "/a/c*"]), [range("/a", "/a0")]);
        assert_eq!(ranges(&["/a*", "/b"]), [range("/a", "/b0")]);
        assert_eq!(ranges(&["/a", "*"]), [(Vec::new(), None)]);
    }

    proptest! {
        #[test]
        fn every_ephemeral_key_is_in_exactly_one_range(
            ephemeral in proptest::collection::vec("[ab/0]{0,3}\\*?", 0..4),
            key in "[ab/0]{0,5}",
        ) {
            let keys = KeySpace::new("/", &ephemeral);
            let key = key.as_bytes();
            let ranges = keys.ephemeral_ranges();
            let holding = ranges.iter().filter(|(start, end)| {
                &start[..] <= key && end.as_ref().is_none_or(|end| key < &end[..])
            });
            let holding = holding.count();
            prop_assert!(holding <= 1);
            prop_assert!(holding == 1 || keys.placement(key) != Ephemeral);
        }

        #[test]
        fn a_data_key_is_its_prefix_and_its_relative_part(
            prefix in "/?[a-b/]{0,4}",
            key in "[ab/]{0,8}",
        ) {
            let keys = KeySpace::new(&prefix, ["/b"]);
            let key = key.as_bytes();
            if keys.placement(key) == Data {
                prop_assert_eq!(keys.absolute(keys.relative(key)), key);
            }
        }
    }
}
