//! A fake of the part of GitHub that is used: it stores repositories, checks tokens, answers conditional requests, and
//! fails on demand.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The token that a fake knows from the start. It must never be shown.
pub(crate) const TOKEN: &str = "ghp_TheSecretThatNobodySees0";

/// A stored repository.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) private: bool,
    pub(crate) description: Option<String>,
    pub(crate) default_branch: String,
    pub(crate) topics: Vec<String>,
    pub(crate) archived: bool,
    pub(crate) branches: BTreeSet<String>,
    /// Whether it is invisible to all tokens.
    pub(crate) hidden: bool,
    created: Timestamp,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) status: u16,
}

/// What happens to the next matching request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This response.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The request is served, but the response is lost.
    DoneInSilence,
}

#[derive(Debug, Default)]
pub(crate) struct Kingdom {
    pub(crate) repositories: BTreeMap<i64, Kept>,
    former: HashMap<(String, String), i64>,
    /// User and delete permission, by token.
    pub(crate) tokens: HashMap<String, (String, bool)>,
    pub(crate) organizations: BTreeSet<String>,
    pub(crate) calls: Vec<Call>,
    faults: VecDeque<(Method, String, Fault)>,
    next: i64,
}

/// A running fake.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) url: String,
    pub(crate) kingdom: Arc<Mutex<Kingdom>>,
    /// The remaining requests of the primary limit; status 304 is free.
    pub(crate) remaining: Arc<AtomicI64>,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kingdom = Kingdom {
            tokens: [(TOKEN.to_owned(), ("someone".to_owned(), true))].into(),
            organizations: ["example-org".to_owned()].into(),
            next: 100,
            ..Kingdom::default()
        };
        let fake = Self { url, kingdom: Arc::new(Mutex::new(kingdom)), remaining: Arc::new(AtomicI64::new(5_000)) };
        let pages = axum::Router::new().fallback(answer).with_state(fake.clone());
        tokio::spawn(async { axum::serve(listener, pages).await });
        fake
    }

    /// Creates a repository of another user.
    pub(crate) fn plant(&self, owner: &str, name: &str) -> i64 {
        self.kingdom.lock().make(owner, &json!({"name": name}))
    }

    /// Makes the next matching request fail.
    pub(crate) fn fail(&self, method: Method, path: &str, fault: Fault) {
        self.kingdom.lock().faults.push_back((method, path.to_owned(), fault));
    }

    /// Answers the next matching requests with a status and a message.
    pub(crate) fn refuse(
        &self,
        method: &Method,
        path: &str,
        times: usize,
        status: u16,
        headers: &[(&'static str, &str)],
        message: &str,
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        for _ in 0..times {
            let body = json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string()}).to_string();
            self.fail(method.clone(), path, Fault::Answer(status, headers.clone(), body));
        }
    }

    pub(crate) fn repository(&self, owner: &str, name: &str) -> Option<(i64, Kept)> {
        let kingdom = self.kingdom.lock();
        let id = kingdom.find(owner, name)?;
        Some((id, kingdom.repositories[&id].clone()))
    }

    pub(crate) fn edit(&self, id: i64, edit: impl FnOnce(&mut Kept)) {
        edit(self.kingdom.lock().repositories.get_mut(&id).unwrap());
    }

    /// Renames a repository, as another user.
    pub(crate) fn rename(&self, id: i64, name: &str) {
        let mut kingdom = self.kingdom.lock();
        let kept = kingdom.repositories.get_mut(&id).unwrap();
        let former = (kept.owner.clone(), std::mem::replace(&mut kept.name, name.to_owned()));
        kingdom.former.insert(former, id);
    }

    /// The requests so far, as `GET /path 200`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = &self.kingdom.lock().calls;
        calls.iter().map(|call| format!("{} {} {}", call.method, call.path, call.status)).collect()
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.calls().into_iter().filter(|call| !call.starts_with("GET")).collect()
    }
}

impl Kingdom {
    fn find(&self, owner: &str, name: &str) -> Option<i64> {
        let is = |kept: &Kept| kept.owner.eq_ignore_ascii_case(owner) && kept.name.eq_ignore_ascii_case(name);
        self.repositories.iter().find(|(_, kept)| is(kept)).map(|(id, _)| *id)
    }

    fn make(&mut self, owner: &str, body: &Value) -> i64 {
        let text = |field: &str| body[field].as_str().map(ToOwned::to_owned);
        self.next += 1;
        let kept = Kept {
            owner: owner.to_owned(),
            name: text("name").unwrap(),
            private: body["private"].as_bool().unwrap_or_default(),
            description: text("description"),
            default_branch: "main".to_owned(),
            topics: Vec::new(),
            archived: false,
            branches: BTreeSet::new(),
            hidden: false,
            created: Timestamp::from_second(Timestamp::now().as_second()).unwrap(),
        };
        self.former.remove(&(owner.to_owned(), kept.name.clone()));
        self.repositories.insert(self.next, kept);
        self.next
    }
}

/// GitHub's full representation of a repository.
fn shown(id: i64, kept: &Kept) -> Value {
    const URLS: &str = "archive assignees blobs branches collaborators comments commits compare contents contributors deployments downloads \
        events forks git_commits git_refs git_tags hooks html issue_comment issue_events issues keys labels languages merges milestones \
        notifications pulls releases stargazers statuses subscribers subscription tags teams trees git ssh svn";
    let full = format!("{}/{}", kept.owner, kept.name);
    let mut shown = json!({
        "id": id, "node_id": format!("R_{id}"), "name": kept.name, "full_name": full, "owner": user(&kept.owner), "private": kept.private,
        "html_url": format!("https://github.test/{full}"), "clone_url": format!("https://github.test/{full}.git"),
        "url": format!("https://api.github.test/repos/{full}"),
        "description": kept.description, "default_branch": kept.default_branch, "topics": kept.topics, "archived": kept.archived,
        "visibility": if kept.private { "private" } else { "public" },
        "permissions": {"admin": true, "push": true, "pull": true},
    });
    let values = [
        ("fork disabled has_pages has_discussions", json!(false)),
        ("has_issues has_projects has_wiki", json!(true)),
        ("mirror_url homepage language license", Value::Null),
        ("pushed_at created_at updated_at", json!(kept.created.to_string())),
        (
            "forks forks_count open_issues open_issues_count size stargazers_count watchers watchers_count network_count subscribers_count",
            json!(0),
        ),
    ];
    for (fields, value) in values {
        fields.split_whitespace().for_each(|field| shown[field] = value.clone());
    }
    for name in URLS.split_whitespace() {
        let field = format!("{name}_url");
        if shown.get(&field).is_none() {
            shown[field] = format!("https://api.github.test/repos/{full}/{name}").into();
        }
    }
    shown
}

fn user(login: &str) -> Value {
    let mut user = json!({
        "login": login, "id": 1, "node_id": "U_1", "gravatar_id": "", "type": "User", "site_admin": false, "user_view_type": "public",
        "name": null, "company": null, "blog": null, "location": null, "email": null, "hireable": null, "bio": null,
        "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0,
        "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
    });
    let names =
        "avatar events followers following gists html organizations received_events repos starred subscriptions";
    for name in names.split_whitespace() {
        user[format!("{name}_url")] = format!("https://api.github.test/users/{login}/{name}").into();
    }
    user["url"] = format!("https://api.github.test/users/{login}").into();
    user
}

fn branch(full: &str, name: &str) -> Value {
    let url = format!("https://api.github.test/repos/{full}/x");
    let by = json!({"name": "a", "email": "a@example.org", "date": "2026-01-01T00:00:00Z"});
    let commit = json!({"author": by, "committer": by, "message": "m", "tree": {"sha": "1", "url": url}, "url": url, "comment_count": 0});
    json!({
        "name": name, "protected": false, "protection": {"enabled": false}, "protection_url": url, "_links": {"html": url, "self": url},
        "commit": {"sha": "1", "node_id": "C_1", "commit": commit, "url": url, "html_url": url, "comments_url": url,
            "author": null, "committer": null, "parents": []},
    })
}

fn error_response(status: u16, message: &str) -> (u16, Value) {
    (
        status,
        json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string()}),
    )
}

async fn answer(State(fake): State<Fake>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    let fault = {
        let faults = &mut fake.kingdom.lock().faults;
        let at = faults.iter().position(|(of, begin, _)| *of == method && path.starts_with(begin.as_str()));
        at.and_then(|at| faults.remove(at)).map(|(.., fault)| fault)
    };
    let log = |status: u16| fake.kingdom.lock().calls.push(Call { method: method.clone(), path: path.clone(), status });
    if let Some(Fault::Answer(status, with, text)) = fault {
        log(status);
        // The worst case: a proxy that echoes the token.
        let text = text.replace("ECHO", headers["authorization"].to_str().unwrap());
        let mut response = (StatusCode::from_u16(status).unwrap(), text).into_response();
        for (name, value) in with {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        return response;
    }
    let (status, value, location) = fake.kingdom.lock().serve(&method, &path, &headers, &body);
    if let Some(Fault::DoneInSilence) = fault {
        log(0);
        // Longer than any test's time limit.
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    let text = if value.is_null() { String::new() } else { value.to_string() };
    let etag =
        format!("\"{:x}\"", text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())));
    let is_known = status == 200
        && method == Method::GET
        && headers.get("if-none-match").is_some_and(|known| known == etag.as_str());
    let status = if is_known { 304 } else { status };
    log(status);
    let remaining =
        if is_known { fake.remaining.load(Ordering::SeqCst) } else { fake.remaining.fetch_sub(1, Ordering::SeqCst) };
    let mut response =
        (StatusCode::from_u16(status).unwrap(), if is_known { String::new() } else { text }).into_response();
    let reset = (Timestamp::now().as_second() + 3_600).to_string();
    let mut put = |name: &'static str, value: &str| drop(response.headers_mut().insert(name, value.parse().unwrap()));
    put("x-ratelimit-remaining", &remaining.max(0).to_string());
    put("x-ratelimit-reset", &reset);
    if status == 200 {
        put("etag", &etag);
    }
    if status != 204 && status != 304 {
        put("content-type", "application/json; charset=utf-8");
    }
    if let Some(location) = location {
        put("location", &format!("{}{location}", fake.url));
    }
    response
}

impl Kingdom {
    fn serve(&mut self, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> (u16, Value, Option<String>) {
        let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let Some((login, may_delete)) = token.and_then(|token| self.tokens.get(token)).cloned() else {
            let (status, body) = error_response(401, "Bad credentials");
            return (status, body, None);
        };
        assert_eq!(headers["x-github-api-version"], "2022-11-28");
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (status, value) = match (method.as_str(), &parts[..]) {
            ("GET", ["user"]) => (200, user(&login)),
            ("POST", ["user", "repos"]) => self.create(&login, &body),
            ("POST", ["orgs", organization, "repos"]) if self.organizations.contains(*organization) => {
                self.create(organization, &body)
            }
            ("GET", ["repositories", id]) => {
                let id = id.parse().unwrap();
                (200, shown(id, &self.repositories[&id]))
            }
            (_, ["repos", owner, name, rest @ ..]) => {
                if let Some(id) = self.find(owner, name).filter(|id| !self.repositories[id].hidden) {
                    self.about(method, id, rest, &body, may_delete)
                } else {
                    if let Some(id) = self.former.get(&((*owner).to_owned(), (*name).to_owned())) {
                        let (_, body) = error_response(301, "Moved Permanently");
                        return (301, body, Some(format!("/repositories/{id}")));
                    }
                    error_response(404, "Not Found")
                }
            }
            _ => error_response(404, "Not Found"),
        };
        (status, value, None)
    }

    fn create(&mut self, owner: &str, body: &Value) -> (u16, Value) {
        if self.find(owner, body["name"].as_str().unwrap()).is_some() {
            let (_, mut value) = error_response(422, "Repository creation failed.");
            value["errors"] = json!([{"resource": "Repository", "field": "name", "code": "custom", "message": "name already exists on this account"}]);
            return (422, value);
        }
        let id = self.make(owner, body);
        (201, shown(id, &self.repositories[&id]))
    }

    fn about(&mut self, method: &Method, id: i64, rest: &[&str], body: &Value, may_delete: bool) -> (u16, Value) {
        let kept = self.repositories.get_mut(&id).unwrap();
        let full = format!("{}/{}", kept.owner, kept.name);
        let is_opened = body["archived"] == false;
        if method != Method::GET && method != Method::DELETE && kept.archived && !is_opened {
            return error_response(403, "Repository was archived so is read-only.");
        }
        match (method.as_str(), rest) {
            ("GET", ["branches", name]) => {
                let name = name.replace("%2F", "/");
                if kept.branches.contains(&name) {
                    (200, branch(&full, &name))
                } else {
                    error_response(404, "Branch not found")
                }
            }
            ("PUT", ["topics"]) => {
                kept.topics = serde_json::from_value(body["names"].clone()).unwrap();
                (200, json!({"names": kept.topics}))
            }
            ("PATCH", []) => {
                if let Some(branch) = body["default_branch"].as_str() {
                    if !kept.branches.contains(branch) {
                        return error_response(422, "Validation Failed");
                    }
                    branch.clone_into(&mut kept.default_branch);
                }
                if let Some(description) = body["description"].as_str() {
                    kept.description = Some(description.to_owned());
                }
                kept.private = body["private"].as_bool().unwrap_or(kept.private);
                kept.archived = body["archived"].as_bool().unwrap_or(kept.archived);
                if let Some(name) = body["name"].as_str() {
                    let former = (kept.owner.clone(), std::mem::replace(&mut kept.name, name.to_owned()));
                    let now = (kept.owner.clone(), name.to_owned());
                    self.former.insert(former, id);
                    self.former.remove(&now);
                }
                (200, shown(id, &self.repositories[&id]))
            }
            ("DELETE", []) if !may_delete => error_response(403, "Must have admin rights to Repository."),
            ("DELETE", []) => {
                self.repositories.remove(&id);
                (204, Value::Null)
            }
            ("GET", []) => (200, shown(id, kept)),
            _ => error_response(404, "Not Found"),
        }
    }
}
