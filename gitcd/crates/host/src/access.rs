//! Authentication and authorization by tokens, client certificates and anonymous access.

mod rights;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine;
use gitcd_net::throttle::LogThrottle;
use parking_lot::Mutex;

pub use self::rights::Access;
pub use self::tokens::Unusable;

use self::rights::Right;
use self::tokens::Tokens;
use super::problem::Problem;

/// Shortest interval between two warnings about an unusable tokens file.
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// An authenticated or anonymous client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// `None` for anonymous clients.
    pub(super) user: Option<String>,
    rights: Arc<[Right]>,
}

impl Caller {
    /// Returns the highest access that the caller has to a repository.
    pub(super) fn access(&self, repository: &str) -> Option<Access> {
        self.rights.iter().filter(|right| right.covers(repository)).map(Right::access).max()
    }
}

/// Authenticates requests.
#[derive(Debug)]
pub(super) struct Gate {
    file: Option<PathBuf>,
    anonymous: Option<Access>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    bytes: Vec<u8>,
    tokens: Arc<Tokens>,
    complaints: LogThrottle,
}

impl Gate {
    pub(super) fn open(file: Option<PathBuf>, anonymous: Option<Access>) -> Result<Self, Unusable> {
        let (mut bytes, mut tokens) = (Vec::new(), Tokens::default());
        if let Some(path) = &file {
            bytes = std::fs::read(path).map_err(|error| Unusable::new(path, error))?;
            tokens = Tokens::parse(path, &bytes)?;
        }
        let loaded = Loaded { bytes, tokens: Arc::new(tokens), complaints: LogThrottle::every(COMPLAIN_EVERY) };
        Ok(Self { file, anonymous, loaded: Mutex::new(loaded) })
    }

    /// Whether clients can authenticate with a token.
    pub(super) fn has_tokens(&self) -> bool {
        self.file.is_some()
    }

    /// Authenticates a request. `certificate` is the name in the connection's client certificate.
    ///
    /// # Errors
    /// [`Problem::Unauthorized`] for an unknown token, and without any credentials if anonymous access is off.
    pub(super) async fn admit(&self, headers: &HeaderMap, certificate: Option<&str>) -> Result<Caller, Problem> {
        let tokens = self.current().await;
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(token).ok_or(Problem::Unauthorized)?;
            let (user, rights) = tokens.by_token(&token).ok_or(Problem::Unauthorized)?;
            return Ok(Caller { user: Some(user), rights });
        }
        if let Some(name) = certificate {
            // The certificate proves the name. Without an entry in the file it has no rights.
            return Ok(Caller { user: Some(name.to_owned()), rights: tokens.by_certificate(name) });
        }
        let access = self.anonymous.ok_or(Problem::Unauthorized)?;
        Ok(Caller { user: None, rights: Arc::new([Right::everywhere(access)]) })
    }

    /// Returns the tokens in the file, or the last usable ones while the file is unusable.
    async fn current(&self) -> Arc<Tokens> {
        let Some(path) = &self.file else { return self.loaded.lock().tokens.clone() };
        // The file is small and compared byte by byte: modification times, inodes and watches can miss a change.
        let read = tokio::fs::read(path).await.map_err(|error| Unusable::new(path, error));
        let mut loaded = self.loaded.lock();
        if read.as_ref().is_ok_and(|bytes| *bytes == loaded.bytes) {
            return loaded.tokens.clone();
        }
        match read.and_then(|bytes| Ok((Tokens::parse(path, &bytes)?, bytes))) {
            Ok((tokens, bytes)) => {
                tracing::info!(path = %path.display(), "reloaded tokens");
                loaded.tokens = Arc::new(tokens);
                loaded.bytes = bytes;
            }
            Err(error) if loaded.complaints.admits(Instant::now()) => {
                tracing::warn!(%error, "cannot use the changed tokens; the previous ones stay in effect");
            }
            Err(_) => {}
        }
        loaded.tokens.clone()
    }
}

/// Returns the token in an `Authorization` header; with Basic it is the password, and the user name is ignored.
fn token(header: &str) -> Option<String> {
    let (scheme, value) = header.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
    let (_, password) =
        String::from_utf8(decoded).ok()?.split_once(':').map(|(user, word)| (user.len(), word.to_owned()))?;
    Some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_passwords_or_bearers() {
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("basic dTphOmI=").as_deref(), Some("a:b"), "u:a:b");
        assert_eq!(token("Basic dTo=").as_deref(), Some(""), "u:");
        for wrong in ["", "Basic", "Basic !", "Basic dQ==", "Digest abc", "Bearer"] {
            assert_eq!(token(wrong), None, "{wrong}");
        }
    }
}
