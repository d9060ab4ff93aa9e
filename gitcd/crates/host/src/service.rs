//! Git's services over smart HTTP, and the headers of their answers.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use super::access::Access;

/// Git's two services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    UploadPack,
    ReceivePack,
}

impl Service {
    pub(super) fn access(self) -> Access {
        match self {
            Self::UploadPack => Access::Read,
            Self::ReceivePack => Access::Write,
        }
    }

    pub(super) fn request_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-request",
            Self::ReceivePack => "application/x-git-receive-pack-request",
        }
    }

    pub(super) fn result_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-result",
            Self::ReceivePack => "application/x-git-receive-pack-result",
        }
    }

    pub(super) fn advertisement_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-advertisement",
            Self::ReceivePack => "application/x-git-receive-pack-advertisement",
        }
    }
}

/// Returns a response that no cache may store.
pub(super) fn answer(content_type: &'static str, body: Body) -> Response {
    const HEADERS: [(HeaderName, HeaderValue); 2] = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, max-age=0, must-revalidate")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (HEADERS, [(header::CONTENT_TYPE, content_type)], body).into_response()
}
