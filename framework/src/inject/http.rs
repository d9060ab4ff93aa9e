//! HTTP requests of kubelet, for probes and hooks.

use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::port::Port;

/// A GET request that kubelet sends to a container. A path alone converts into it.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpGet {
    path: String,
    headers: Vec<HTTPHeader>,
}

impl HttpGet {
    /// Creates a request of this path, without headers of its own.
    pub fn path(path: impl Into<String>) -> Self {
        Self { path: path.into(), headers: Vec::new() }
    }

    /// Adds a header. Everyone who can read the pod can read the value.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(HTTPHeader { name: name.into(), value: value.into() });
        self
    }

    pub(super) fn action(self, port: &Port<'_, '_>, scheme: Option<&str>) -> HTTPGetAction {
        // An API server sets an empty path to this one.
        let path = if self.path.is_empty() { "/".to_owned() } else { self.path };
        let http_headers = Some(self.headers).filter(|headers| !headers.is_empty());
        let (port, scheme) = (IntOrString::Int(port.number().into()), scheme.map(str::to_owned));
        HTTPGetAction { path: Some(path), port, scheme, http_headers, ..HTTPGetAction::default() }
    }
}

impl From<&str> for HttpGet {
    fn from(path: &str) -> Self {
        Self::path(path)
    }
}

impl From<String> for HttpGet {
    fn from(path: String) -> Self {
        Self::path(path)
    }
}

impl From<&String> for HttpGet {
    fn from(path: &String) -> Self {
        Self::path(path)
    }
}
