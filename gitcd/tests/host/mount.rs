//! A host mounted in another HTTP server.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use gitcd::host::{Access, Config, Host};
use tower::ServiceExt;

use super::git::Repository;

#[tokio::test]
async fn the_routes_can_be_mounted_beside_others() {
    let folder = tempfile::tempdir().unwrap();
    Repository::init_bare(&folder.path().join("a.git"));
    let config = Config { anonymous: Some(Access::Read), ..Config::new(folder.path()) };
    let host = Host::start(config).await.unwrap();
    let nested = Router::new().route("/health", get(async || "fine")).nest("/git", host.router());
    let merged = Router::new().route("/health", get(async || "fine")).merge(host.router());
    for (routes, path, status) in [
        (&nested, "/health", StatusCode::OK),
        (&nested, "/git/a/info/refs?service=git-upload-pack", StatusCode::OK),
        (&nested, "/git/none/info/refs?service=git-upload-pack", StatusCode::FORBIDDEN),
        (&nested, "/git/health", StatusCode::NOT_FOUND),
        (&nested, "/a/info/refs?service=git-upload-pack", StatusCode::NOT_FOUND),
        (&merged, "/health", StatusCode::OK),
        (&merged, "/a/info/refs?service=git-upload-pack", StatusCode::OK),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(routes.clone().oneshot(request).await.unwrap().status(), status, "{path}");
    }
}
