//! GitHub's REST API.

mod error;
mod pace;
mod transport;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use serde_json::error::Category;
use serde_json::{Value, json};
use trishanku_service::http::Client as HttpClient;

pub use self::error::CallError;
pub use self::pace::Limited;
use self::pace::Pace;
pub(crate) use self::transport::Access;
use crate::GitHubSettings;
use crate::repository::Repository;
pub use crate::servers::AccessError;

/// The version of the API.
const API_VERSION: &str = "2022-11-28";
/// Size limit of a response.
const MOST_BYTES: usize = 4 << 20;
/// Length limit of messages from GitHub.
const MOST_CHARACTERS: usize = 300;

/// Client for GitHub with one token.
pub struct Client {
    http: HttpClient,
    access: Access,
    authorization: (HeaderName, HeaderValue),
    pace: Pace,
    login: tokio::sync::Mutex<Option<String>>,
}

/// The result of looking up a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Unchanged since the last request.
    Unchanged,
    /// It exists.
    Found {
        /// The repository.
        repository: Box<Repository>,
        /// For the next conditional request.
        etag: Option<String>,
    },
    /// It does not exist, or the token may not see it.
    Missing {
        /// The time of the response, by the server's clock.
        at: Option<Timestamp>,
    },
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// [`AccessError`]: the token, the address or the certificates cannot be used.
    pub(crate) fn new(access: Access, settings: &GitHubSettings) -> Result<Self, AccessError> {
        let http = access.client(settings.patience, MOST_BYTES)?;
        let authorization = access.authorization()?;
        let pace = Pace::new(settings.clone());
        Ok(Self { http, access, authorization, pace, login: tokio::sync::Mutex::default() })
    }

    /// Checks whether requests are allowed now.
    ///
    /// # Errors
    /// [`Limited`] with the remaining time.
    pub fn check(&self) -> Result<(), Limited> {
        self.pace.check()
    }

    /// Returns the token's user. Requested once.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn login(&self) -> Result<String, CallError> {
        let mut login = self.login.lock().await;
        if let Some(login) = &*login {
            return Ok(login.clone());
        }
        let what = "find the token's user";
        let answer = self.ask(what, Method::GET, "/user", None, None).await?;
        let answer = self.good(what, answer)?;
        let found: Value = parsed(what, &answer.body)?;
        let name = found["login"].as_str().ok_or_else(|| nonsense(what, "no login"))?.to_owned();
        *login = Some(name.clone());
        Ok(name)
    }

    /// Looks up a repository, following renames and moves.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn look(&self, owner: &str, name: &str, etag: Option<&str>) -> Result<Look, CallError> {
        let what = format!("look at {owner}/{name}");
        let mut answer = self.ask(&what, Method::GET, &format!("/repos/{owner}/{name}"), etag, None).await?;
        if matches!(answer.status.as_u16(), 301 | 302 | 307 | 308) {
            let location = answer.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let path = location.and_then(|location| self.access.path_of(location));
            let path = path.ok_or_else(|| nonsense(&what, "redirect to another server"))?;
            answer = self.ask(&what, Method::GET, &path, None, None).await?;
        }
        match answer.status {
            StatusCode::NOT_MODIFIED => Ok(Look::Unchanged),
            StatusCode::NOT_FOUND => Ok(Look::Missing { at: date(&answer.headers) }),
            _ => {
                let answer = self.good(&what, answer)?;
                let etag = answer.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(ToOwned::to_owned);
                Ok(Look::Found { repository: Box::new(parsed(&what, &answer.body)?), etag })
            }
        }
    }

    /// Whether a repository has a branch.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn has_branch(&self, repository: &str, branch: &str) -> Result<bool, CallError> {
        let what = format!("look at branch {branch:?} of {repository}");
        let path = format!("/repos/{repository}/branches/{}", encoded(branch));
        let answer = self.ask(&what, Method::GET, &path, None, None).await?;
        match answer.status {
            // GitHub redirects from the former name of a renamed branch.
            StatusCode::NOT_FOUND | StatusCode::MOVED_PERMANENTLY => Ok(false),
            _ => self.good(&what, answer).map(|_| true),
        }
    }

    /// Creates a repository, in an organization or of the user.
    ///
    /// # Errors
    /// [`CallError`]. After [`Unreachable`](CallError::Unreachable) and [`Unavailable`](CallError::Unavailable) it may
    /// have been created.
    pub async fn create(&self, organization: Option<&str>, body: &Value) -> Result<Repository, CallError> {
        let name = body["name"].as_str().unwrap_or_default();
        let (what, path) = match organization {
            Some(organization) => (format!("create {organization}/{name}"), format!("/orgs/{organization}/repos")),
            None => (format!("create {name}"), "/user/repos".to_owned()),
        };
        let answer = self.write(&what, Method::POST, &path, Some(body)).await?;
        parsed(&what, &answer.body)
    }

    /// Changes fields of a repository.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn change(&self, repository: &str, body: &Value) -> Result<Repository, CallError> {
        let fields: Vec<_> = body.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
        let what = format!("change {} of {repository}", fields.join(", "));
        let answer = self.write(&what, Method::PATCH, &format!("/repos/{repository}"), Some(body)).await?;
        parsed(&what, &answer.body)
    }

    /// Replaces the topics of a repository.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn set_topics(&self, repository: &str, topics: &[String]) -> Result<(), CallError> {
        let (what, body) = (format!("change topics of {repository}"), json!({"names": topics}));
        self.write(&what, Method::PUT, &format!("/repos/{repository}/topics"), Some(&body)).await.map(drop)
    }

    /// Deletes a repository with all its content. It is not an error if it does not exist.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delete(&self, repository: &str) -> Result<(), CallError> {
        let what = format!("delete {repository}");
        match self.write(&what, Method::DELETE, &format!("/repos/{repository}"), None).await {
            Err(CallError::NotFound { .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn write(&self, what: &str, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, CallError> {
        self.pace.turn().await?;
        let answer = self.ask(what, method, path, None, body).await?;
        self.good(what, answer)
    }

    async fn ask(
        &self,
        what: &str,
        method: Method,
        path: &str,
        etag: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, CallError> {
        self.pace.check()?;
        let unreachable = |problem: String| CallError::Unreachable { what: what.to_owned(), problem };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/vnd.github+json, application/json;q=0.9")
            .header("x-github-api-version", API_VERSION)
            .header(USER_AGENT, concat!("trishanku-manager/", env!("CARGO_PKG_VERSION")));
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let (name, value) = self.authorization.clone();
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.header(name, value).body(body).map_err(|error| unreachable(error.to_string()))?;
        let response = self.http.send(request).await.map_err(|error| unreachable(self.access.chain(&error)))?;
        let (parts, body) = response.into_parts();
        let answer =
            Answer { status: parts.status, headers: parts.headers, body: String::from_utf8_lossy(&body).into_owned() };
        tracing::debug!(what, status = answer.status.as_u16(), "GitHub was asked");
        match self.pace.learn(answer.status, &answer.headers, &answer.body) {
            Some(limited) => Err(limited.into()),
            None => Ok(answer),
        }
    }

    /// Returns a successful response, or an error for its status.
    fn good(&self, what: &str, answer: Answer) -> Result<Answer, CallError> {
        let (status, what) = (answer.status, what.to_owned());
        if status.is_success() {
            return Ok(answer);
        }
        let message = self.access.without_token(&message(&answer.body));
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        Err(match status.as_u16() {
            401 => CallError::Unauthorized { what, message },
            403 => CallError::Forbidden { what, message, needs: self.access.without_token(&needs(&header)) },
            404 | 410 => CallError::NotFound { what },
            409 | 423 => CallError::Conflict { what, message },
            400 | 422 => CallError::Refused { what, message },
            408 | 500..=599 => {
                let after = header("retry-after").and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
                CallError::Unavailable { what, status: status.as_u16(), message, after }
            }
            code => CallError::Nonsense { what, problem: format!("code {code}: {message}") },
        })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The permissions that a token lacks, if the server names them: scopes for classic tokens, permissions for fine-grained
/// ones.
fn needs<'h>(header: &impl Fn(&str) -> Option<&'h str>) -> String {
    let permissions = header("x-accepted-github-permissions").filter(|text| !text.is_empty());
    let scopes = header("x-accepted-oauth-scopes").filter(|text| !text.is_empty());
    match (permissions, scopes, header("x-oauth-scopes")) {
        (Some(permissions), ..) => format!("; it needs the permissions {}", short(permissions)),
        (None, Some(scopes), has) => {
            format!(
                "; it needs one of the scopes {} and has {}",
                short(scopes),
                short(has.filter(|has| !has.is_empty()).unwrap_or("none"))
            )
        }
        (None, None, _) => String::new(),
    }
}

/// GitHub's message from a response, with the details of errors. Other content is not repeated: readers of a status may
/// not be allowed to read what is behind that address.
fn message(body: &str) -> String {
    let value = serde_json::from_str::<Value>(body).unwrap_or_default();
    let Some(said) = value["message"].as_str() else {
        return format!("{} bytes without a GitHub message", body.len());
    };
    let mut text = said.to_owned();
    for error in value["errors"].as_array().into_iter().flatten() {
        let detail = error["message"].as_str().or(error.as_str());
        let detail = detail.map_or_else(
            || ["field", "code"].map(|of| error[of].as_str().unwrap_or_default()).join(" "),
            ToOwned::to_owned,
        );
        text = format!("{text}: {}", detail.trim());
    }
    short(&text)
}

/// Shortens a text to one line of limited length.
fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MOST_CHARACTERS).collect()
}

fn parsed<T: serde::de::DeserializeOwned>(what: &str, body: &str) -> Result<T, CallError> {
    // The error's own text would contain values.
    let problem = |error: serde_json::Error| match error.classify() {
        Category::Data => format!("a field is missing or has another type before column {}", error.column()),
        _ => "it is not JSON".to_owned(),
    };
    serde_json::from_str(body).map_err(|error| nonsense(what, &problem(error)))
}

fn nonsense(what: &str, problem: &str) -> CallError {
    CallError::Nonsense { what: what.to_owned(), problem: problem.to_owned() }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok().map(|time| time.timestamp())
}

/// Percent-encodes a text as one segment of a path.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
            _ => path.extend(['%'].into_iter().chain(format!("{byte:02X}").chars())),
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_github_says_to_people() {
        let body = r#"{"message": "Validation Failed", "errors": [{"resource": "Repository", "field": "name", "code": "custom", "message": "name already exists on this account"}, {"field": "x", "code": "missing"}, "plain"]}"#;
        assert_eq!(message(body), "Validation Failed: name already exists on this account: x missing: plain");
        let long = json!({"message": "ä ".repeat(1000)}).to_string();
        assert_eq!(message(&long).chars().count(), MOST_CHARACTERS);
    }

    #[test]
    fn of_an_answer_that_is_none_of_githubs_nothing_is_repeated() {
        for body in
            ["<html>\n secret</html>", r#"{"data": "secret"}"#, r#"{"message": {"a": "secret"}}"#, r#"["secret"]"#]
        {
            assert_eq!(message(body), format!("{} bytes without a GitHub message", body.len()));
            let error = parsed::<Repository>("look", body).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("spec.apiUrl"), "{error}");
        }
        let error = parsed::<Repository>("look", r#"{"id": "secret"}"#).unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("another type"), "{error}");
    }

    #[test]
    fn missing_permissions_are_reported_for_both_kinds_of_tokens() {
        let with = |pairs: &'static [(&'static str, &'static str)]| {
            needs(&move |name: &str| pairs.iter().find(|(found, _)| *found == name).map(|(_, value)| *value))
        };
        assert_eq!(
            with(&[("x-accepted-github-permissions", "administration=write")]),
            "; it needs the permissions administration=write"
        );
        assert_eq!(
            with(&[("x-accepted-oauth-scopes", "delete_repo"), ("x-oauth-scopes", "")]),
            "; it needs one of the scopes delete_repo and has none"
        );
        assert_eq!(with(&[]), "");
    }

    #[test]
    fn a_branch_is_one_segment() {
        assert_eq!(encoded("kcm/data ä"), "kcm%2Fdata%20%C3%A4");
    }
}
