//! Authenticates requests and routes them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use gitcd_net::listener::Peer;

use super::access::{Access, Caller};
use super::name::Name;
use super::problem::{Problem, blocking};
use super::refusals::Asker;
use super::service::Service;
use super::{Inner, events, fetch, push};

const EVENTS_AT: HeaderValue = HeaderValue::from_static("refs/events");

/// The operation that a path and a method ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Advertisement(Service),
    Call(Service),
    Events,
}

/// Splits a request into repository and operation. Paths are not unescaped: names have no characters that need it.
fn wish<'p>(method: &Method, path: &'p str, query: Option<&str>) -> Result<(&'p str, Wish), Problem> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (name, wish, wanted) = if let Some(name) = path.strip_suffix("/info/refs") {
        let service = query.unwrap_or_default().split('&').find_map(|part| part.strip_prefix("service="));
        let service = match service {
            Some("git-upload-pack") => Service::UploadPack,
            Some("git-receive-pack") => Service::ReceivePack,
            _ => return Err(Problem::Bad("only Git's smart protocol is supported; use a newer client")),
        };
        (name, Wish::Advertisement(service), Method::GET)
    } else if let Some(name) = path.strip_suffix("/git-upload-pack") {
        (name, Wish::Call(Service::UploadPack), Method::POST)
    } else if let Some(name) = path.strip_suffix("/git-receive-pack") {
        (name, Wish::Call(Service::ReceivePack), Method::POST)
    } else if let Some(name) = path.strip_suffix("/refs/events") {
        (name, Wish::Events, Method::GET)
    } else {
        return Err(Problem::NotFound);
    };
    if *method == wanted { Ok((name, wish)) } else { Err(Problem::Method) }
}

/// Handles all requests.
pub(super) async fn handle(State(host): State<Arc<Inner>>, request: Request) -> Response {
    let mut asker = Asker::of(&request);
    match respond(&host, request, &mut asker).await {
        Ok(response) => response,
        Err(problem) => {
            host.refusals.log(&problem, &asker);
            problem.into_response()
        }
    }
}

async fn respond(host: &Arc<Inner>, request: Request, asker: &mut Asker) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let (name, wish) = wish(&parts.method, parts.uri.path(), parts.uri.query())?;
    let peer = parts.extensions.get::<Peer>();
    let caller = host.gate.admit(&parts.headers, peer.and_then(|peer| peer.name.as_deref())).await?;
    asker.user.clone_from(&caller.user);
    // A web page must not push with the rights of anonymous clients on this machine. Git sends no `Origin`.
    if parts.method == Method::POST && parts.headers.contains_key(header::ORIGIN) {
        return Err(Problem::Forbidden);
    }
    let needed = match wish {
        Wish::Advertisement(service) | Wish::Call(service) => service.access(),
        Wish::Events => Access::Read,
    };
    let name = Name::parse(name);
    let access = name.as_ref().and_then(|name| caller.access(name.as_str()));
    let (Some(name), Some(access)) = (name, access.filter(|access| *access >= needed)) else {
        return Err(refused(host, &caller));
    };
    if let Wish::Call(service) = wish
        && parts.headers.get(header::CONTENT_TYPE).is_none_or(|given| given != service.request_type())
    {
        return Err(Problem::Type(service.request_type()));
    }
    let (repository, may_be_made) = {
        let (host, name) = (host.clone(), name.clone());
        let look = move || {
            let found = host.repository(&name);
            // Clients whose push may create the repository can fetch from it before, as gitcd does: it is empty.
            let may_be_made = found.is_none() && host.create_on_push && access >= Access::Write;
            (found, may_be_made && name.place(&host.root).is_some())
        };
        blocking("find the repository", look).await?
    };
    if let (Some(owner), Some(repository)) = (&host.owner, &repository)
        && access >= Access::Write
        && is_person(&parts.headers)
    {
        // It resolves symbolic links.
        let (owner, repository) = (owner.clone(), repository.clone());
        blocking("pause the commits of the branch", move || owner.looked_at(&repository)).await?;
    }
    let protocol = protocol(&parts.headers);
    let missing = || refused(host, &caller);
    match wish {
        Wish::Advertisement(Service::UploadPack) => {
            let _permit = host.permit().await?;
            let mut advertised = if may_be_made {
                let nothing = push::Created::nothing(&host.root).await?;
                let advertised = fetch::advertise(host, nothing.folder(), protocol).await;
                nothing.remove().await;
                advertised?
            } else {
                fetch::advertise(host, &repository.ok_or_else(missing)?, protocol).await?
            };
            advertised.headers_mut().insert(gitcd_sync::EVENTS_HEADER, EVENTS_AT);
            Ok(advertised)
        }
        Wish::Call(Service::UploadPack) if may_be_made => {
            let _permit = host.permit().await?;
            fetch::nothing(host, &parts.headers, protocol, body).await
        }
        Wish::Call(Service::UploadPack) => {
            let repository = repository.ok_or_else(missing)?;
            fetch::serve(host, &repository, &parts.headers, protocol, body, host.permit().await?).await
        }
        Wish::Advertisement(Service::ReceivePack) | Wish::Call(Service::ReceivePack) => {
            let target = match repository {
                Some(repository) => push::Target::Present(repository),
                None if host.create_on_push => push::Target::New(name),
                None => return Err(missing()),
            };
            let permit = host.permit().await?;
            if let Wish::Call(_) = wish {
                let by = push::By { user: caller.user, access };
                push::serve(host, target, by, &parts.headers, body, permit).await
            } else {
                push::advertise(host, &target).await
            }
        }
        Wish::Events => {
            // A repository that does not exist yet has no events; that is not a refusal.
            let repository = repository.ok_or_else(|| if may_be_made { Problem::NotFound } else { missing() })?;
            events::serve(host, repository, name, parts.headers, peer.cloned()).await
        }
    }
}

/// Forbids the request; an anonymous caller is asked for a token if the host has any.
fn refused(host: &Inner, caller: &Caller) -> Problem {
    if caller.user.is_some() || !host.gate.has_tokens() { Problem::Forbidden } else { Problem::Unauthorized }
}

/// Whether the client is not a gitcd, which resolves races with commits by itself.
fn is_person(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).map_or(&b""[..], |agent| agent.as_bytes());
    !agent.starts_with(gitcd_sync::USER_AGENT.as_bytes())
}

/// Returns Git's protocol version, which goes into the environment of a Git process.
fn protocol(headers: &HeaderMap) -> Option<&str> {
    const MAX_BYTES: usize = 128;
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'=' | b':' | b'-' | b'.');
    let value = headers.get("git-protocol")?.to_str().ok()?;
    (value.len() <= MAX_BYTES && value.bytes().all(plain)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_with_what_is_wanted() {
        let get = |path, query| wish(&Method::GET, path, query).ok();
        let advertisement = Some(("a/b.git", Wish::Advertisement(Service::UploadPack)));
        assert_eq!(get("/a/b.git/info/refs", Some("service=git-upload-pack")), advertisement);
        assert_eq!(get("/a/refs/events", None), Some(("a", Wish::Events)));
        assert_eq!(get("/info/refs", Some("service=git-upload-pack")), None);
        assert_eq!(get("/a/info/refs", Some("service=git-upload-archive")), None);
        assert_eq!(get("/a/info/refs", None), None);
        assert_eq!(get("/a/git-upload-pack", None), None);
        let post = |path| wish(&Method::POST, path, None).ok();
        assert_eq!(post("/a/git-receive-pack"), Some(("a", Wish::Call(Service::ReceivePack))));
        assert_eq!(post("/a/refs/events"), None);
        assert_eq!(post("/a/HEAD"), None);
    }

    #[test]
    fn only_plain_words_get_into_the_environment() {
        let with = |value: &'static str| {
            let headers = HeaderMap::from_iter([("git-protocol".parse().unwrap(), HeaderValue::from_static(value))]);
            protocol(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(with("version=2").as_deref(), Some("version=2"));
        assert_eq!(with("version=2;x"), None);
        assert_eq!(with("version=2 $(x)"), None);
    }
}
