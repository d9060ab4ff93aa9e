//! The source of the framework.

use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value;

/// The source of the framework and the testkit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A checkout of the repository.
    Checkout(PathBuf),
    /// The URL of the repository.
    Git(String),
}

/// Why a source is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Cargo only accepts URLs.
    #[error("Cargo does not accept this address; write ssh://{0}")]
    NoUrl(String),
    /// The path cannot be read.
    #[error("{path:?} cannot be read: {reason}")]
    NotFound {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// The folder is not a checkout of the repository.
    #[error("{0:?} is not a checkout of Trishanku: it has no {1}")]
    NoCheckout(PathBuf, String),
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if text.contains("://") {
            return Ok(Self::Git(text.to_owned()));
        }
        match text.split_once(':') {
            // Git's short form: user@host:path.
            Some((host, path)) if host.contains('@') && !host.contains('/') => {
                return Err(SourceError::NoUrl(format!("{host}/{path}")));
            }
            _ => {}
        }
        let path = PathBuf::from(text);
        let whole = path.canonicalize().map_err(|reason| SourceError::NotFound { path, reason })?;
        for part in ["framework", "testkit"] {
            let manifest = format!("{part}/Cargo.toml");
            let text = std::fs::read_to_string(whole.join(&manifest)).unwrap_or_default();
            if !text.contains(&format!("name = \"trishanku-{part}\"")) {
                return Err(SourceError::NoCheckout(whole, manifest));
            }
        }
        Ok(Self::Checkout(whole))
    }
}

impl Source {
    /// Mounts a checkout into the image build, at the path where `Cargo.toml` expects it; empty for a repository.
    pub(super) fn mount(&self) -> String {
        match self {
            Self::Checkout(path) => {
                format!("    --mount=type=bind,from=trishanku,target={} \\\n", path.display())
            }
            Self::Git(_) => String::new(),
        }
    }

    /// The command that builds the image.
    pub(super) fn build(&self, name: &str) -> String {
        match self {
            Self::Checkout(path) => {
                // Quoted for a shell.
                let checkout = path.to_string_lossy().replace('\'', "'\\''");
                format!("docker build --tag {name} --build-context trishanku='{checkout}' .")
            }
            Self::Git(_) => format!("docker build --tag {name} ."),
        }
    }

    /// A dependency on a part of the repository, for `Cargo.toml`.
    pub(super) fn dependency(&self, part: &str) -> String {
        // A JSON string is a valid TOML string.
        match self {
            Self::Checkout(path) => format!("{{ path = {} }}", Value::from(path.join(part).to_string_lossy())),
            Self::Git(url) => format!("{{ git = {} }}", Value::from(url.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_and_a_repository_are_distinguished_and_everything_else_is_refused() {
        let git: Source = "https://example.org/t".parse().unwrap();
        assert_eq!(git.dependency("framework"), r#"{ git = "https://example.org/t" }"#);
        assert_eq!((git.mount(), git.build("a")), (String::new(), "docker build --tag a .".to_owned()));
        let checkout: Source = concat!(env!("CARGO_MANIFEST_DIR"), "/..").parse().unwrap();
        let Source::Checkout(root) = &checkout else { panic!("{checkout:?}") };
        assert_eq!(checkout.dependency("testkit"), format!(r#"{{ path = "{}/testkit" }}"#, root.display()));
        assert_eq!(checkout.mount(), format!("    --mount=type=bind,from=trishanku,target={} \\\n", root.display()));
        let expected = format!("docker build --tag a --build-context trishanku='{}' .", root.display());
        assert_eq!(checkout.build("a"), expected);
        for (text, expected) in [
            ("git@example.org:me/t.git", "write ssh://git@example.org/me/t.git"),
            ("/there/is/nothing", "\"/there/is/nothing\" cannot be read: No such file"),
            (env!("CARGO_MANIFEST_DIR"), "is not a checkout of Trishanku: it has no framework/Cargo.toml"),
        ] {
            let error = text.parse::<Source>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
