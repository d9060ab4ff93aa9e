//! Client for Git's smart HTTP protocol. A branch that follows another one has an exchange after each change of either, and
//! with the `git` program, most of its duration is the start of processes and connections.
//!
//! Fetches use version 2, in one round trip: `done` follows the `have` lines. Pushes use version 0, with a thin pack. Remotes
//! that do not support these versions, and repositories with special Git settings, are left to the program. Sources:
//! `gitprotocol-http(5)`, `gitprotocol-v2(5)`, `gitprotocol-pack(5)`.

mod discover;
mod events;
mod fetch;
mod lines;
mod push;
mod settings;

use std::path::Path;
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_repo::pkt_line;
use parking_lot::Mutex;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use tokio_rustls::rustls::{self, CertificateError};

use self::discover::discover;
pub(super) use self::events::Events;
pub(super) use self::fetch::have;
use self::lines::Lines;
use self::settings::Settings;
use super::authorities::Authorities;
use super::credentials::{Credentials, decoded};
use super::status::Condition;
use super::wire::{Cause, TransportError};

const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// Longest time without data from the remote during a response.
const SILENCE: Duration = Duration::from_mins(1);
/// Interval and timeout of pings; a connection without a response is closed.
const ALIVE: Duration = Duration::from_secs(3);

/// The connections to one remote, and its capabilities.
#[derive(Debug, Default)]
pub(super) struct Session {
    client: Mutex<Option<TrustingClient>>,
    fetched: Mutex<Option<Remote>>,
    pushed: Mutex<Option<Remote>>,
    settings: Settings,
}

/// A client, with the authorities that it trusts besides those of this machine.
#[derive(Debug)]
struct TrustingClient {
    authorities: Option<Authorities>,
    client: reqwest::Client,
}

/// The Git service of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Fetch,
    Push,
}

/// The location and capabilities of a remote.
#[derive(Clone, Debug)]
struct Remote {
    asked: String,
    /// The URL after redirections, without user and password.
    url: String,
    /// Whether it supports the protocol of this client.
    is_known: bool,
    events: Option<String>,
    is_atomic: bool,
}

/// One exchange.
pub(super) struct Exchange<'s> {
    session: &'s Session,
    client: reqwest::Client,
    credentials: &'s Credentials,
    service: Service,
    asked: &'s str,
    remote: Remote,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Fetch => "git-upload-pack",
            Service::Push => "git-receive-pack",
        }
    }
}

impl Session {
    /// Starts an exchange; `None` if the remote is left to the program.
    pub(super) async fn begin<'s>(
        &'s self,
        repository: &Path,
        url: &'s str,
        credentials: &'s Credentials,
        service: Service,
    ) -> Result<Option<Exchange<'s>>, TransportError> {
        if self.settings.are_special(repository, &split(url).0, Instant::now()) {
            return Ok(None);
        }
        // Read each time: certificates are replaced before they expire, and a Secret with them is updated.
        let authorities = credentials.authorities(url).map(|file| Authorities::read(&file)).transpose()?;
        let client = self.client(authorities)?;
        let known = self.known(service).lock().clone().filter(|known| known.asked == url);
        let remote = if let Some(known) = known {
            known
        } else {
            let found = discover(&client, url, credentials, service).await;
            // A new client, because the trusted certificates may have changed.
            let found = found.inspect_err(|_| *self.client.lock() = None)?;
            if found.is_known {
                // Only a supported remote is remembered: anything else may be temporary, such as a login page.
                *self.known(service).lock() = Some(found.clone());
            }
            found
        };
        Ok(remote.is_known.then_some(Exchange { session: self, client, credentials, service, asked: url, remote }))
    }

    /// Forgets the capabilities and closes the connections.
    pub(super) fn forget(&self, service: Service) {
        *self.known(service).lock() = None;
        *self.client.lock() = None;
    }

    fn known(&self, service: Service) -> &Mutex<Option<Remote>> {
        match service {
            Service::Fetch => &self.fetched,
            Service::Push => &self.pushed,
        }
    }

    fn client(&self, authorities: Option<Authorities>) -> Result<reqwest::Client, TransportError> {
        let mut known = self.client.lock();
        if let Some(known) = known.as_ref().filter(|known| known.authorities == authorities) {
            return Ok(known.client.clone());
        }
        let failed = |error: reqwest::Error| TransportError::new(Condition::Failed, gitcd_core::error::chain(&error));
        let certificates = authorities.as_ref().map(Authorities::certificates).transpose().map_err(failed)?;
        // Fails if the process has installed a provider already.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let built = reqwest::Client::builder()
            .user_agent(crate::USER_AGENT)
            .connect_timeout(CONNECT_WITHIN)
            .redirect(Policy::custom(follow))
            .http2_keep_alive_interval(ALIVE)
            .http2_keep_alive_timeout(ALIVE)
            .tcp_nodelay(true)
            .tls_certs_merge(certificates.unwrap_or_default())
            .build();
        let client = built.map_err(failed)?;
        *known = Some(TrustingClient { authorities, client: client.clone() });
        Ok(client)
    }
}

/// Follows redirections only on the same server, because the credentials are for that one.
fn follow(attempt: Attempt<'_>) -> Action {
    const MOST: usize = 5;
    let from = attempt.previous().last().map(Url::origin);
    if from == Some(attempt.url().origin()) && attempt.previous().len() <= MOST {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

impl Exchange<'_> {
    /// Returns the remote's references whose names start with one of these, annotated tags peeled.
    pub(super) async fn references(&self, beginnings: &[&str]) -> Result<Vec<(String, Oid)>, TransportError> {
        let mut body = Vec::new();
        pkt_line::put(&mut body, b"command=ls-refs\n");
        body.extend_from_slice(pkt_line::DELIMITER);
        // Branches are never tags, and a gitcd host responds faster without `peel`.
        if !beginnings.iter().all(|name| name.starts_with("refs/heads/") || name.starts_with("refs/gitcd/")) {
            pkt_line::put(&mut body, b"peel\n");
        }
        for beginning in beginnings {
            pkt_line::put(&mut body, format!("ref-prefix {beginning}\n").as_bytes());
        }
        body.extend_from_slice(pkt_line::FLUSH);
        let mut lines = self.call(body).await?;
        let mut found = Vec::new();
        while let Some(line) = lines.listed().await? {
            let mut words = line.split(' ');
            if let (Some(oid), Some(name)) = (words.next().and_then(|oid| Oid::from_str(oid).ok()), words.next()) {
                // An annotated tag stands for its commit.
                let peeled = words.find_map(|word| Oid::from_str(word.strip_prefix("peeled:")?).ok());
                found.push((name.to_owned(), peeled.unwrap_or(oid)));
            }
        }
        Ok(found)
    }

    /// Sends a request to the service.
    async fn call(&self, body: Vec<u8>) -> Result<Lines, TransportError> {
        let name = self.service.name();
        let mut request = self
            .client
            .post(format!("{}/{name}", self.remote.url))
            .header(CONTENT_TYPE, format!("application/x-{name}-request"))
            .body(body);
        if self.service == Service::Fetch {
            request = request.header("git-protocol", "version=2");
        }
        let response = self.send(request).await?;
        if !has_type(&response, &format!("application/x-{name}-result")) {
            self.forget();
            return Err(TransportError::new(
                Condition::Unreachable,
                format!("the response of {} is not in Git's protocol", self.remote.url),
            ));
        }
        Ok(Lines::new(response))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, TransportError> {
        // After any error, it may be another server by now.
        send(request, self.credentials, self.asked).await.inspect_err(|_| self.forget())
    }

    fn forget(&self) {
        self.session.forget(self.service);
    }
}

fn has_type(response: &Response, wanted: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found == wanted)
}

/// Sends a request with the current credentials; fails unless the response is a success.
async fn send(request: RequestBuilder, credentials: &Credentials, url: &str) -> Result<Response, TransportError> {
    checked(ask(request, credentials, url).await?, &split(url).0)
}

async fn ask(request: RequestBuilder, credentials: &Credentials, url: &str) -> Result<Response, TransportError> {
    let (bare, own) = split(url);
    let found = match own {
        Some((user, Some(password))) => Some((user, password)),
        // As Git does when it asks for the password of a user.
        Some((user, None)) => credentials.of(&bare.replacen("://", &format!("://{user}@"), 1)),
        None => credentials.of(&bare),
    };
    let request = match found {
        Some(_) if credentials.are_withheld(&bare) => return Err(TransportError::withheld(&bare)),
        Some((user, password)) => request.basic_auth(user, Some(password)),
        None => request,
    };
    request.send().await.map_err(|failed| error(&failed))
}

fn checked(response: Response, bare: &str) -> Result<Response, TransportError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(match status {
        StatusCode::UNAUTHORIZED => {
            TransportError::new(Condition::Denied, format!("Authentication failed for {bare}: {status}"))
                .with_cause(Cause::Unauthenticated)
        }
        StatusCode::FORBIDDEN => TransportError::new(Condition::Denied, format!("{bare} refuses access: {status}")),
        _ => TransportError::new(Condition::Unreachable, format!("{bare} responded with {status}")),
    })
}

/// Splits a URL into the URL without user and password, and these.
fn split(url: &str) -> (String, Option<(String, Option<String>)>) {
    let Some((scheme, rest)) = url.split_once("://") else { return (url.to_owned(), None) };
    let host = rest.split('/').next().unwrap_or_default();
    let Some((userinfo, _)) = host.rsplit_once('@') else { return (url.to_owned(), None) };
    let bare = format!("{scheme}://{}", &rest[userinfo.len() + 1..]);
    let named = match userinfo.split_once(':') {
        Some((user, password)) => (decoded(user), Some(decoded(password))),
        None => (decoded(userinfo), None),
    };
    (bare, Some(named))
}

fn error(failed: &reqwest::Error) -> TransportError {
    // The library's message contains the URL, which has no credentials here.
    let error = TransportError::new(Condition::Unreachable, gitcd_core::error::chain(failed));
    if is_untrusted(failed) { error.with_cause(Cause::UntrustedCertificate) } else { error }
}

/// Returns whether an error is about a certificate that no trusted authority has issued.
fn is_untrusted(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    causes.any(|cause| {
        // A self-signed certificate of an authority is reported as another error.
        let is_untrusted =
            |error: &CertificateError| matches!(error, CertificateError::UnknownIssuer | CertificateError::Other(_));
        matches!(tls_error(cause), Some(rustls::Error::InvalidCertificate(error)) if is_untrusted(error))
    })
}

/// Returns the error of TLS in an error. I/O errors are opened, one in another: the source of each is that of the error in it.
fn tls_error<'e>(mut error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    while let Some(io) = error.downcast_ref::<std::io::Error>() {
        error = io.get_ref()?;
    }
    error.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn an_error_of_tls_is_found_however_deep_it_is() {
        let untrusted = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(tls_error(&untrusted()).is_some());
        assert!(tls_error(&Error::other(Error::other(untrusted()))).is_some());
        assert!(tls_error(&Error::other("no route")).is_none());
    }
}
