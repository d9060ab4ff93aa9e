//! How kubelet finds out how a container is.

use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, HTTPGetAction, Probe as Raw, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::port::Port;

/// A look at a container. Kubelet looks from outside at the pod's address: what listens on loopback only needs [`exec`](Self::exec).
///
/// Unless it is said otherwise, every 10 s, for at most 1 s, and what fails 3 times has failed.
#[derive(Clone, Debug)]
#[must_use]
pub struct Probe<'c, 'p> {
    pub(super) raw: Raw,
    port: PhantomData<Port<'c, 'p>>,
}

impl<'c, 'p> Probe<'c, 'p> {
    fn of(raw: Raw) -> Self {
        Self { raw, port: PhantomData }
    }

    /// A GET of `path` without TLS is answered with a status from 200 to 399.
    pub fn http(port: &Port<'c, 'p>, path: impl Into<String>) -> Self {
        Self::get(port, path.into(), None)
    }

    /// A GET of `path` with TLS is answered with a status from 200 to 399. The certificate is not verified.
    pub fn https(port: &Port<'c, 'p>, path: impl Into<String>) -> Self {
        Self::get(port, path.into(), Some("HTTPS".to_owned()))
    }

    fn get(port: &Port<'c, 'p>, path: String, scheme: Option<String>) -> Self {
        let port = IntOrString::Int(port.number().into());
        let get = HTTPGetAction { path: Some(path), port, scheme, ..HTTPGetAction::default() };
        Self::of(Raw { http_get: Some(get), ..Raw::default() })
    }

    /// A connection can be opened.
    pub fn tcp(port: &Port<'c, 'p>) -> Self {
        let socket = TCPSocketAction { host: None, port: IntOrString::Int(port.number().into()) };
        Self::of(Raw { tcp_socket: Some(socket), ..Raw::default() })
    }

    /// gRPC's health service says that the server is serving. Without TLS: kubelet cannot do it with.
    pub fn grpc(port: &Port<'c, 'p>) -> Self {
        let grpc = GRPCAction { port: port.number().into(), service: None };
        Self::of(Raw { grpc: Some(grpc), ..Raw::default() })
    }

    /// A command in the container ends with 0.
    pub fn exec<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::of(Raw { exec: Some(ExecAction { command: Some(command) }), ..Raw::default() })
    }

    /// How often, in whole seconds, at least one.
    pub fn every(mut self, period: Duration) -> Self {
        self.raw.period_seconds = Some(seconds(period));
        self
    }

    /// How long one look may take, in whole seconds, at least one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.raw.timeout_seconds = Some(seconds(timeout));
        self
    }

    /// How many failures in a row make it fail, at least one. A container may take `failures` times the period to start.
    pub fn failures(mut self, failures: u16) -> Self {
        self.raw.failure_threshold = Some(failures.max(1).into());
        self
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}
