//! The login: a token in the printed URL, which is exchanged for a cookie once.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::Mutex;
use rand::TryRngCore as _;
use rand::rngs::OsRng;

/// Random bytes of a secret.
const BYTES: usize = 32;

/// The secrets of one server. They end with its process.
pub(crate) struct Session {
    /// The token of the URL, until it is used.
    token: Mutex<Option<String>>,
    /// Cookies have no port, so their names have it.
    name: String,
    secret: String,
    /// In every form of this server, so that forms of other servers on this host are rejected.
    form: String,
}

impl Session {
    /// Creates the secrets of the server at a port.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new(port: u16) -> Result<(Self, String), rand::rand_core::OsError> {
        let token = random()?;
        let session = Self {
            token: Mutex::new(Some(token.clone())),
            name: format!("trishanku_{port}"),
            secret: random()?,
            form: random()?,
        };
        Ok((session, token))
    }

    /// Exchanges the token for the value of `Set-Cookie`. Only the first exchange succeeds. `Lax`: a link in a terminal that is a web
    /// page opens as a navigation from another site, after which `Strict` would not send the cookie. Requests that change something have the token of forms, too.
    pub(crate) fn redeem(&self, token: &str) -> Option<String> {
        let mut expected = self.token.lock();
        let is_right = expected.as_ref().is_some_and(|expected| is_equal(expected, token));
        if is_right {
            *expected = None;
        }
        is_right.then(|| format!("{}={}; HttpOnly; SameSite=Lax; Path=/", self.name, self.secret))
    }

    /// Returns the token of forms.
    pub(crate) fn form_token(&self) -> &str {
        &self.form
    }

    /// Returns whether this is the token of forms.
    pub(crate) fn is_form_token(&self, given: &str) -> bool {
        is_equal(&self.form, given)
    }

    /// Returns whether a request has the cookie.
    pub(crate) fn is_of(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.name && is_equal(&self.secret, value))
    }
}

fn random() -> Result<String, rand::rand_core::OsError> {
    let mut bytes = [0; BYTES];
    OsRng.try_fill_bytes(&mut bytes)?;
    let digit = |value: u8| char::from_digit(value.into(), 16);
    Ok(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).flatten().collect())
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_equal(expected: &str, given: &str) -> bool {
    let differences = expected.bytes().zip(given.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    expected.len() == given.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_and_only_the_cookie_after_it() {
        let (session, token) = Session::new(4711).unwrap();
        assert!(session.redeem("").is_none() && session.redeem(&token[1..]).is_none());
        let cookie = session.redeem(&token).unwrap();
        assert!(session.redeem(&token).is_none());
        let (pair, rest) = cookie.split_once("; ").unwrap();
        assert_eq!(rest, "HttpOnly; SameSite=Lax; Path=/");
        let is_of = |value: &str| session.is_of(&HeaderMap::from_iter([(COOKIE, value.parse().unwrap())]));
        assert!(is_of(pair) && is_of(&format!("other=1; {pair}")));
        assert!(!is_of(&pair[..pair.len() - 1]) && !is_of("trishanku_4711=") && !is_of(&format!("x{pair}")));
        assert!(!pair.contains(&token));
    }
}
