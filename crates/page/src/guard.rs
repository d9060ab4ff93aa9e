//! What every request passes: the host, the login, and the security headers of the response.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};

use crate::app::App;
use crate::query::Query;
use crate::view;

/// No source but this server, no inline script or style, no frame, no form to another place.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                                       img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Answers requests with a foreign host or without the login; adds the security headers to all responses.
pub(crate) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(response) => *response,
    };
    response.headers_mut().extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn admit(app: &App, request: &Request) -> Result<(), Box<Response>> {
    let forbidden = |text: &str| Box::new((StatusCode::FORBIDDEN, view::refusal(text)).into_response());
    if !is_own_host(app, request.uri(), request.headers()) {
        return Err(forbidden(
            "This server answers only as 127.0.0.1 or localhost. Open the URL that trishanku ui printed.",
        ));
    }
    let query = Query::of(request.uri());
    if let Some(token) = query.text("token").filter(|_| request.uri().path() == "/" && request.method() == Method::GET)
        && let Some(cookie) = app.session.redeem(token)
    {
        // Without the token, which thus does not stay in the address bar.
        return Err(Box::new(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()));
    }
    if app.session.is_of(request.headers()) {
        // Forms have a token, too: this is the second line of defence, for browsers that say where a request comes from.
        if request.method().is_safe() || is_of_own_page(app, request.headers()) {
            return Ok(());
        }
        return Err(forbidden("This request comes from another web page. Nothing was changed."));
    }
    Err(forbidden(
        "You are not logged in. The URL that trishanku ui printed works once, in one browser. If it was this browser, open the address without the token; otherwise stop the program and start it again for a new URL.",
    ))
}

/// Returns whether a request names this server. A page of another host that resolves its own name to this machine (DNS
/// rebinding) sends that name. The port may be another one: that of a tunnel.
fn is_own_host(app: &App, uri: &Uri, headers: &HeaderMap) -> bool {
    let mut names: Vec<&str> = uri.authority().map(Authority::as_str).into_iter().collect();
    for value in headers.get_all(header::HOST) {
        // Text that is not ASCII is no host of ours.
        names.push(value.to_str().unwrap_or("?"));
    }
    !names.is_empty() && names.iter().all(|name| is_own_name(app, name))
}

fn is_own_name(app: &App, name: &str) -> bool {
    let Ok(authority) = name.parse::<Authority>() else { return false };
    let host = authority.host();
    !name.contains('@') && (matches!(host, "127.0.0.1" | "localhost" | "[::1]") || host == app.host)
}

/// Returns whether a request that changes something comes from a page of this server, as far as the browser says it. With
/// `Referrer-Policy: no-referrer`, the origin of a form is `null`.
fn is_of_own_page(app: &App, headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
    let site = headers.get(HeaderName::from_static("sec-fetch-site")).map(text);
    let origin = headers.get(header::ORIGIN).map(text).filter(|origin| origin != "null");
    let is_own_origin = |origin: &String| origin.strip_prefix("http://").is_some_and(|name| is_own_name(app, name));
    site.is_none_or(|site| site == "same-origin") && origin.as_ref().is_none_or(is_own_origin)
}
