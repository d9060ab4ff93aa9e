//! Configuration of branches, from flags with a value for each branch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gitcd_core::keyspace::KeySpace;

pub use gitcd_net::listener::Listen;
use gitcd_repo::branch;
pub use gitcd_repo::branch::DEFAULT_NAME;

/// An invalid value of a flag.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not `name=value[,name=value]`.
    #[error("--{flag}: cannot read {value:?}; give name=value[,name=value], or one value for the branch \"default\"")]
    Map {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
    },
    /// A name is not a plain word.
    #[error("--{flag}: {name:?} is not a branch's name; use letters, digits, '-', '_' and '.'")]
    Name {
        /// The flag.
        flag: String,
        /// The name.
        name: String,
    },
    /// A value cannot be parsed.
    #[error("--{flag}: {value:?}: {problem}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// Several URLs separated by commas, as in etcd.
    #[error(
        "--{flag}: {value:?}: several URLs are separated by ';', not by commas as in etcd; in a shell put quotes around them"
    )]
    Comma {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
    },
    /// Two branches have the same value.
    #[error("--{flag}: branches {first:?} and {second:?} both have {value:?}")]
    Twice {
        /// The flag.
        flag: &'static str,
        /// One branch.
        first: String,
        /// The other.
        second: String,
        /// The value.
        value: String,
    },
}

impl ConfigError {
    /// Returns the flag, without the dashes.
    pub fn flag(&self) -> &str {
        match self {
            Self::Map { flag, .. } | Self::Name { flag, .. } | Self::Comma { flag, .. } => flag,
            Self::Value { flag, .. } | Self::Twice { flag, .. } => flag,
        }
    }
}

/// The values of one flag by branch: `name=value[,name=value]`, or a single value for the branch `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerBranch(BTreeMap<String, String>);

impl PerBranch {
    /// Parses a flag's value.
    ///
    /// # Errors
    /// [`ConfigError::Map`], [`ConfigError::Name`], [`ConfigError::Comma`].
    pub fn parse(flag: &str, value: &str) -> Result<Self, ConfigError> {
        let (mut values, whole) = (BTreeMap::new(), value);
        if value.is_empty() {
            return Ok(Self(values));
        }
        for (at, part) in value.split(',').enumerate() {
            // A single URL or path may contain '=' too, but not after a plain word.
            let (name, value) = match part.split_once('=') {
                Some((name, value)) if !name.contains(['/', ':']) => (name, value),
                // A URL without a name, or another one of the previous branch.
                _ if at > 0 && part.contains("://") => {
                    return Err(ConfigError::Comma { flag: flag.to_owned(), value: whole.to_owned() });
                }
                _ => (DEFAULT_NAME, part),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(ConfigError::Name { flag: flag.to_owned(), name: name.to_owned() });
            }
            if values.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(ConfigError::Map { flag: flag.to_owned(), value: part.to_owned() });
            }
        }
        Ok(Self(values))
    }

    /// Returns the value for a branch.
    pub fn of(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether no branch has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the branches that have a value.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the value for a branch as a number.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn number<T: std::str::FromStr>(&self, flag: &'static str, name: &str) -> Result<Option<T>, ConfigError>
    where
        T::Err: std::fmt::Display,
    {
        let Some(value) = self.of(name) else { return Ok(None) };
        let parsed = value.parse().map_err(|problem: T::Err| ConfigError::Value {
            flag,
            value: value.to_owned(),
            problem: problem.to_string(),
        });
        parsed.map(Some)
    }
}

/// Flags that define branches, and their repository.
#[derive(Clone, Debug, Default)]
pub struct Branches {
    /// The repository.
    pub repository: PathBuf,
    /// Data references by branch.
    pub data: PerBranch,
    /// Metadata references by branch.
    pub metadata: PerBranch,
    /// Key prefixes by branch.
    pub prefixes: PerBranch,
    /// Ephemeral prefixes by branch, separated by ':'.
    pub ephemeral: PerBranch,
    /// Author of all commits.
    pub committer_name: String,
    /// The author's email address.
    pub committer_email: String,
}

impl Branches {
    /// Returns the branches named in these flags or in `others`; `default` if none is named.
    pub fn names(&self, others: &[&PerBranch]) -> Vec<String> {
        let own = [&self.data, &self.metadata, &self.prefixes, &self.ephemeral];
        let flags = own.into_iter().chain(others.iter().copied());
        let mut names: BTreeSet<_> = flags.flat_map(PerBranch::names).map(ToOwned::to_owned).collect();
        if names.is_empty() {
            names.insert(DEFAULT_NAME.to_owned());
        }
        names.into_iter().collect()
    }

    /// Returns the configuration of a branch; defaults derive from its name.
    pub fn branch(&self, name: &str) -> branch::Config {
        let usual = branch::Config::named(self.repository.clone(), name);
        let reference = |given: Option<&str>, usual: String| given.map_or(usual, str::to_owned);
        let prefix = self.prefixes.of(name).unwrap_or("/");
        let ephemeral = self.ephemeral.of(name).unwrap_or_default().split(':').filter(|prefix| !prefix.is_empty());
        branch::Config {
            data_reference: reference(self.data.of(name), usual.data_reference),
            metadata_reference: reference(self.metadata.of(name), usual.metadata_reference),
            keys: KeySpace::new(prefix, ephemeral),
            committer_name: self.committer_name.clone(),
            committer_email: self.committer_email.clone(),
            repository: usual.repository,
            name: usual.name,
        }
    }

    /// Checks that no two branches share a reference.
    ///
    /// # Errors
    /// [`ConfigError::Twice`].
    pub fn check(&self, names: &[String]) -> Result<(), ConfigError> {
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        for name in names {
            let config = self.branch(name);
            for (flag, value) in [
                ("data-reference-names", config.data_reference),
                ("metadata-reference-names", config.metadata_reference),
            ] {
                if let Some(first) = taken.insert(value.clone(), name.clone()) {
                    return Err(ConfigError::Twice { flag, first, second: name.clone(), value });
                }
            }
        }
        Ok(())
    }
}

/// Parses the URLs in the value of a flag, separated by ';'.
///
/// # Errors
/// [`ConfigError::Value`], [`ConfigError::Comma`].
pub fn listen_urls(flag: &'static str, urls: &str) -> Result<Vec<Listen>, ConfigError> {
    if urls.contains(',') {
        return Err(ConfigError::Comma { flag: flag.to_owned(), value: urls.to_owned() });
    }
    let parse = |url: &str| {
        let wrong = |problem: &str| ConfigError::Value { flag, value: url.to_owned(), problem: problem.to_owned() };
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| wrong("it must be http://HOST:PORT or https://HOST:PORT"))?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("the scheme must be http or https")),
        };
        let host = rest.trim_end_matches('/').replace("localhost:", "127.0.0.1:");
        let address =
            host.parse().map_err(|_| wrong("the host must be an IP address or localhost, followed by a port"))?;
        Ok(Listen { flag, address, tls })
    };
    urls.split(';').filter(|url| !url.is_empty()).map(parse).collect()
}

/// etcd's default peer URL.
pub const DEFAULT_PEER_URL: &str = "http://localhost:2380";

/// Parses peer URLs, separated by ';': accepts those that etcd accepts, and sorts them as etcd does.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn peer_urls(urls: &str) -> Result<Vec<String>, ConfigError> {
    let mut urls: Vec<_> = urls.split(';').map(str::trim).filter(|url| !url.is_empty()).collect();
    if let Some(wrong) = urls.iter().find(|url| !is_peer_url(url)) {
        return Err(ConfigError::Value {
            flag: "initial-advertise-peer-urls",
            value: (*wrong).to_owned(),
            problem: "it must be http://HOST:PORT or https://HOST:PORT, without a path".to_owned(),
        });
    }
    urls.sort_unstable();
    Ok(urls.into_iter().map(ToOwned::to_owned).collect())
}

/// Whether etcd accepts a peer URL: scheme, host and port, no path.
pub(crate) fn is_peer_url(url: &str) -> bool {
    let Some((scheme, authority)) = url.trim().split_once("://") else { return false };
    match scheme {
        "unix" | "unixs" => true,
        "http" | "https" => {
            let host_and_port = authority.rsplit_once(':');
            host_and_port.is_some_and(|(_, port)| !port.contains(']')) && !authority.contains('/')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_for_peers_are_those_that_etcd_takes() {
        let urls = peer_urls("https://b.example:2380; http://[::1]:1;").unwrap();
        assert_eq!(urls, ["http://[::1]:1", "https://b.example:2380"]);
        assert_eq!(peer_urls(DEFAULT_PEER_URL).unwrap(), [DEFAULT_PEER_URL]);
        for wrong in ["x", "ftp://a:1", "http://a", "http://a:1/x", "http://[::1]"] {
            let said = peer_urls(wrong).unwrap_err().to_string();
            assert!(said.starts_with("--initial-advertise-peer-urls") && said.contains("HOST:PORT"), "{said}");
        }
    }

    #[test]
    fn a_map_gives_each_branch_its_value_and_a_plain_value_is_for_the_default_one() {
        let map = PerBranch::parse("key-prefixes", "default=/registry,other=/x=y").unwrap();
        assert_eq!(map.of("default"), Some("/registry"));
        assert_eq!(map.of("other"), Some("/x=y"));
        let plain = PerBranch::parse("listen-urls", "http://127.0.0.1:1/?a=b").unwrap();
        assert_eq!(plain.of(DEFAULT_NAME), Some("http://127.0.0.1:1/?a=b"));
    }

    #[test]
    fn names_that_cannot_be_a_folder_and_repeated_ones_are_refused() {
        for wrong in ["=x", "..=x", "a b=x"] {
            assert!(matches!(PerBranch::parse("f", wrong), Err(ConfigError::Name { .. })), "{wrong}");
        }
        assert!(matches!(PerBranch::parse("f", "a=1,a=2"), Err(ConfigError::Map { .. })));
    }

    #[test]
    fn urls_separated_as_in_etcd_are_refused_with_how_to_separate_them() {
        let (one, other) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
        for value in [format!("{one},{other}"), format!("mine={one},{other}"), format!("a={one},b={other},{one}")] {
            let refused = PerBranch::parse("listen-urls", &value).unwrap_err();
            assert!(matches!(refused, ConfigError::Comma { .. }) && refused.to_string().contains("';'"), "{refused}");
        }
        assert!(matches!(listen_urls("host-listen-urls", &format!("{one},{other}")), Err(ConfigError::Comma { .. })));
        PerBranch::parse("listen-urls", &format!("a={one},b={other};{one}")).unwrap();
        PerBranch::parse("key-prefixes", "a=/x,/y").unwrap();
    }

    fn branches(data: &str, prefixes: &str) -> Branches {
        Branches {
            repository: "repo.git".into(),
            data: PerBranch::parse("data-reference-names", data).unwrap(),
            metadata: PerBranch::default(),
            prefixes: PerBranch::parse("key-prefixes", prefixes).unwrap(),
            ephemeral: PerBranch::default(),
            committer_name: String::new(),
            committer_email: String::new(),
        }
    }

    #[test]
    fn branches_are_those_that_are_named_and_the_default_one_only_if_none_is() {
        let listen = PerBranch::parse("listen-urls", "b=http://127.0.0.1:1").unwrap();
        for (data, prefixes, others, names) in [
            ("", "", vec![], vec!["default"]),
            ("a=refs/heads/main", "", vec![], vec!["a"]),
            ("a=refs/heads/main", "a=/x,b=/y", vec![], vec!["a", "b"]),
            ("a=refs/heads/a", "/x", vec![], vec!["a", "default"]),
            ("", "", vec![&listen], vec!["b"]),
            ("a=refs/heads/main", "", vec![&listen], vec!["a", "b"]),
        ] {
            let branches = branches(data, prefixes);
            let found = branches.names(&others);
            assert_eq!(found, names, "{data}, {prefixes}");
            branches.check(&found).unwrap();
        }
    }

    #[test]
    fn a_branch_has_references_of_its_own_name_and_no_two_share_one() {
        let (one, two) = ("a".to_owned(), DEFAULT_NAME.to_owned());
        let config = branches("", "").branch("a");
        assert_eq!([config.data_reference, config.metadata_reference], ["refs/heads/a", "refs/gitcd/metadata/a"]);
        let config = branches("", "").branch(DEFAULT_NAME);
        assert_eq!([config.data_reference, config.metadata_reference], ["refs/heads/main", "refs/gitcd/metadata/main"]);
        let clash = branches("a=refs/heads/main", "/").check(&[one, two]).unwrap_err();
        assert!(matches!(clash, ConfigError::Twice { flag: "data-reference-names", .. }), "{clash}");
    }

    #[test]
    fn listen_urls_say_what_is_wrong_with_them() {
        let listen_urls = |urls| listen_urls("host-listen-urls", urls);
        let two = listen_urls("http://127.0.0.1:2379;https://[::1]:0").unwrap();
        assert_eq!(two.len(), 2);
        assert!(two[1].tls);
        assert_eq!(listen_urls("ftp://127.0.0.1:1").unwrap_err().flag(), "host-listen-urls");
        for wrong in ["127.0.0.1:2379", "ftp://127.0.0.1:1", "http://example.org:1", "http://127.0.0.1"] {
            assert!(listen_urls(wrong).is_err(), "{wrong}");
        }
    }
}
