//! The address of GitHub, and the access with a token.

use std::fmt;
use std::time::Duration;

use http::Uri;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use trishanku_service::error;
use trishanku_service::http::Client;
use trishanku_service::tls::ClientTls;

use crate::servers::{AccessError, Purpose, Servers};

/// The API of github.com.
const PUBLIC: &str = "https://api.github.com";

/// A token and its server. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Access {
    url: Uri,
    token: String,
    authorities: Option<Vec<u8>>,
}

impl Access {
    /// With `authorities` (PEM), these are trusted in addition.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) fn new(
        url: Option<&str>,
        token: &[u8],
        authorities: Option<&[u8]>,
        servers: &Servers,
    ) -> Result<Self, AccessError> {
        let token = str::from_utf8(token).map_err(|_| AccessError::Token)?.trim().to_owned();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AccessError::Token);
        }
        let text = url.unwrap_or(PUBLIC).trim_end_matches('/');
        let url: Uri = text.parse().map_err(|_| AccessError::Url(text.to_owned()))?;
        if url.authority().is_none() || !matches!(url.scheme_str(), Some("https" | "http")) || url.query().is_some() {
            return Err(AccessError::Url(text.to_owned()));
        }
        servers.check(&url)?;
        Ok(Self { url, token, authorities: authorities.map(<[u8]>::to_vec) })
    }

    /// Checks the server against the key `url` of the Secret; an empty value allows all servers.
    ///
    /// # Errors
    /// [`AccessError::Elsewhere`], also if the value names no server.
    pub(crate) fn check(&self, secret: &str, url: &[u8]) -> Result<(), AccessError> {
        let url = str::from_utf8(url).map(str::trim);
        if url == Ok("") {
            return Ok(());
        }
        let purpose = url.ok().and_then(Purpose::of);
        if purpose.as_ref().is_some_and(|purpose| purpose.covers(&self.url)) {
            return Ok(());
        }
        let token = self.token.to_ascii_lowercase();
        let shown = purpose.as_ref().and_then(Purpose::shown).filter(|host| !host.contains(&token));
        Err(AccessError::Elsewhere {
            secret: secret.to_owned(),
            purpose: shown.unwrap_or_else(|| "no server that can be named here".to_owned()),
            server: self.url.authority().map(ToString::to_string).unwrap_or_default(),
        })
    }

    /// A hash of the access that does not reveal the token.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in
            [self.url.to_string().as_bytes(), self.token.as_bytes(), self.authorities.as_deref().unwrap_or_default()]
        {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// Creates the HTTP client. It follows no redirects, so that the token reaches no other server.
    pub(super) fn client(&self, within: Duration, at_most_bytes: usize) -> Result<Client, AccessError> {
        let mut tls = ClientTls::new().system_authorities();
        if let Some(pem) = &self.authorities {
            tls = tls.authorities(pem).map_err(|error| AccessError::Authorities(error::chain(&error)))?;
        }
        let client = Client::builder(self.url.clone()).tls(tls.config()).keep_connections();
        Ok(client.within(within).at_most(at_most_bytes).build())
    }

    /// Returns the header that authenticates requests. Debug output does not show its value.
    pub(super) fn authorization(&self) -> Result<(HeaderName, HeaderValue), AccessError> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.token)).map_err(|_| AccessError::Token)?;
        value.set_sensitive(true);
        Ok((AUTHORIZATION, value))
    }

    /// The path of a URL of the same server, below the API's; `None` for other servers, which must not get the token.
    pub(super) fn path_of(&self, location: &str) -> Option<String> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(location.to_owned());
        }
        let rest = location.strip_prefix(self.url.to_string().trim_end_matches('/'))?;
        rest.starts_with('/').then(|| rest.to_owned())
    }

    pub(super) fn without_token(&self, text: &str) -> String {
        text.replace(&self.token, "[token]")
    }

    /// Returns an error with its causes, without the token.
    pub(super) fn chain(&self, error: &dyn std::error::Error) -> String {
        self.without_token(&error::chain(error))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_explained_and_no_token_is_shown() {
        let servers = Servers { named: vec!["github.example.org".parse().unwrap()], in_the_clear: false };
        let access = Access::new(Some("https://github.example.org/api/v3/"), b" ghp_secret\n", None, &servers).unwrap();
        assert!(!format!("{access:?}").contains("secret"), "{access:?}");
        assert_eq!(access.without_token("Bearer ghp_secret!"), "Bearer [token]!");
        assert_eq!(
            access.path_of("https://github.example.org/api/v3/repositories/7").as_deref(),
            Some("/repositories/7")
        );
        for other in ["https://github.example.org.evil/api/v3/x", "//evil/x", "https://github.example.org/api/v3evil"] {
            assert_eq!(access.path_of(other), None, "{other}");
        }
        for (url, token, words) in [
            (None, &b""[..], "store only the token"),
            (None, b"two words", "store only the token"),
            (Some("github.example.org"), b"x", "github.example.org/api/v3"),
            (Some("https://a?b"), b"x", "not the URL"),
            (Some("https://other.example.org"), b"x", "--github-api-hosts"),
            (Some("http://github.example.org"), b"x", "--github-allow-http"),
        ] {
            let error = Access::new(url, token, None, &servers).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("two"), "{error}");
        }
        let access = Access::new(None, b"ghp_secret", None, &servers).unwrap();
        for (url, words) in [
            (&b"https://me:ghp_secret@git.example.org/x"[..], "for git.example.org;"),
            (b"ghp_secret", "no server"),
            (b"https://ghp_secret", "no server"),
            (b"\xff", "no server"),
        ] {
            let error = access.check("git-cred", url).unwrap_err().to_string();
            let expected = [words, "Secret \"git-cred\"", "sent to api.github.com", "spec.credentialsSecretName"];
            assert!(expected.iter().all(|part| error.contains(part)) && !error.contains("secret@"), "{error}");
            assert!(!error.contains("ghp"), "{error}");
        }
        let access = Access::new(None, b"0123.ABCDEF", None, &servers).unwrap();
        assert!(!access.check("x", b"0123.ABCDEF").unwrap_err().to_string().to_lowercase().contains("abcdef"));
        for well in [&b"https://github.com\n"[..], b" \n", b""] {
            assert!(access.check("x", well).is_ok());
        }
        let (_, header) = access.authorization().unwrap();
        assert!(header == "Bearer 0123.ABCDEF" && !format!("{header:?}").contains("0123"), "{header:?}");
        let access = Access::new(None, b"x", Some(b"nothing"), &servers).unwrap();
        assert!(access.client(Duration::MAX, 0).unwrap_err().to_string().contains("PEM"));
    }
}
