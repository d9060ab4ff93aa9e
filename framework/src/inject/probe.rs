//! Probes, by which kubelet checks containers.

use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, HTTPGetAction, Probe as Raw, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::port::Port;

/// A probe of a container. Kubelet connects to the pod's address from outside, so a server on loopback needs
/// [`exec`](Self::exec).
///
/// By default it runs every 10 s, times out after 1 s, and fails after 3 consecutive failures.
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

    /// Succeeds if a GET of `path` without TLS returns a status from 200 to 399.
    pub fn http(port: &Port<'c, 'p>, path: impl Into<String>) -> Self {
        Self::get(port, path.into(), None)
    }

    /// Succeeds if a GET of `path` with TLS returns a status from 200 to 399. The certificate is not verified.
    pub fn https(port: &Port<'c, 'p>, path: impl Into<String>) -> Self {
        Self::get(port, path.into(), Some("HTTPS".to_owned()))
    }

    fn get(port: &Port<'c, 'p>, path: String, scheme: Option<String>) -> Self {
        let port = IntOrString::Int(port.number().into());
        let get = HTTPGetAction { path: Some(path), port, scheme, ..HTTPGetAction::default() };
        Self::of(Raw { http_get: Some(get), ..Raw::default() })
    }

    /// Succeeds if a connection can be opened.
    pub fn tcp(port: &Port<'c, 'p>) -> Self {
        let socket = TCPSocketAction { host: None, port: IntOrString::Int(port.number().into()) };
        Self::of(Raw { tcp_socket: Some(socket), ..Raw::default() })
    }

    /// Succeeds if gRPC's health service reports that the server is serving. Kubelet does not support TLS here.
    pub fn grpc(port: &Port<'c, 'p>) -> Self {
        let grpc = GRPCAction { port: port.number().into(), ..GRPCAction::default() };
        Self::of(Raw { grpc: Some(grpc), ..Raw::default() })
    }

    /// Succeeds if a command in the container exits with 0.
    pub fn exec<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::of(Raw { exec: Some(ExecAction { command: Some(command) }), ..Raw::default() })
    }

    /// Sets the period, in whole seconds, at least one.
    pub fn every(mut self, period: Duration) -> Self {
        self.raw.period_seconds = Some(seconds(period));
        self
    }

    /// Sets the timeout of one attempt, in whole seconds, at least one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.raw.timeout_seconds = Some(seconds(timeout));
        self
    }

    /// Sets how many consecutive failures fail the probe, at least one. A container may take `failures` times the period to
    /// start.
    pub fn failures(mut self, failures: u16) -> Self {
        self.raw.failure_threshold = Some(failures.max(1).into());
        self
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}
