//! Probes, by which kubelet checks containers.

use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, Probe as Raw, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::http::HttpGet;
use super::port::Port;

mod sealed {
    pub trait ForReadiness {}
    pub trait ForRestart {}
}

/// The use of a [`Probe`] that can be a startup, readiness or liveness probe.
#[derive(Clone, Copy, Debug)]
pub enum AnyProbe {}

/// The use of a [`Probe`] with [`successes`](Probe::successes), which can only be a readiness probe.
#[derive(Clone, Copy, Debug)]
pub enum ReadinessOnly {}

/// The use of a [`Probe`] with [`termination_grace_period`](Probe::termination_grace_period), which restarts the container.
#[derive(Clone, Copy, Debug)]
pub enum RestartOnly {}

/// Uses of probes that a readiness probe can have.
#[diagnostic::on_unimplemented(
    message = "a probe with a termination grace period cannot be a readiness probe",
    note = "a failed readiness probe does not terminate the container"
)]
pub trait ForReadiness: sealed::ForReadiness {}

/// Uses of probes that startup and liveness probes can have.
#[diagnostic::on_unimplemented(
    message = "a probe with a success threshold can only be a readiness probe",
    note = "Kubernetes requires that startup and liveness probes succeed after one success"
)]
pub trait ForRestart: sealed::ForRestart {}

impl sealed::ForReadiness for AnyProbe {}
impl sealed::ForReadiness for ReadinessOnly {}
impl sealed::ForRestart for AnyProbe {}
impl sealed::ForRestart for RestartOnly {}
impl ForReadiness for AnyProbe {}
impl ForReadiness for ReadinessOnly {}
impl ForRestart for AnyProbe {}
impl ForRestart for RestartOnly {}

/// A probe of a container. Kubelet connects to the pod's address from outside, so a server on loopback needs
/// [`exec`](Self::exec).
///
/// By default it runs every 10 s, times out after 1 s, and fails after 3 consecutive failures. If a setting is set again,
/// the last one counts. `U` is its use: [`AnyProbe`], [`ReadinessOnly`], [`RestartOnly`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Probe<'c, 'p, U = AnyProbe> {
    pub(super) raw: Raw,
    port: PhantomData<Port<'c, 'p>>,
    usage: PhantomData<U>,
}

impl<'c, 'p> Probe<'c, 'p> {
    /// Succeeds if a GET without TLS returns a status from 200 to 399. `get` is a path, or an [`HttpGet`] with headers.
    pub fn http(port: &Port<'c, 'p>, get: impl Into<HttpGet>) -> Self {
        Self::of(Raw { http_get: Some(get.into().action(port, None)), ..Raw::default() })
    }

    /// Succeeds if a GET with TLS returns a status from 200 to 399. The certificate is not verified. `get` is a path, or an
    /// [`HttpGet`] with headers.
    pub fn https(port: &Port<'c, 'p>, get: impl Into<HttpGet>) -> Self {
        Self::of(Raw { http_get: Some(get.into().action(port, Some("HTTPS"))), ..Raw::default() })
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

    /// Succeeds if gRPC's health service reports that this service of the server is serving.
    pub fn grpc_service(port: &Port<'c, 'p>, service: impl Into<String>) -> Self {
        // The service is set apart: with it in the expression, versions of Kubernetes without more fields would need no `..`.
        let mut grpc = GRPCAction { port: port.number().into(), ..GRPCAction::default() };
        grpc.service = Some(service.into());
        Self::of(Raw { grpc: Some(grpc), ..Raw::default() })
    }

    /// Succeeds if a command in the container exits with 0.
    pub fn exec<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::of(Raw { exec: Some(ExecAction { command: Some(command) }), ..Raw::default() })
    }

    /// Sets how many consecutive successes make the container ready again after a failure, at least one. Such a probe can
    /// only be a readiness probe.
    pub fn successes(mut self, successes: u16) -> Probe<'c, 'p, ReadinessOnly> {
        self.raw.success_threshold = Some(successes.max(1).into());
        Probe::of(self.raw)
    }

    /// Sets how long a container that failed the probe may take to terminate, in whole seconds, at least one; by default as
    /// long as the pod. Such a probe cannot be a readiness probe.
    pub fn termination_grace_period(mut self, period: Duration) -> Probe<'c, 'p, RestartOnly> {
        self.raw.termination_grace_period_seconds = Some(seconds(period).into());
        Probe::of(self.raw)
    }
}

impl<U> Probe<'_, '_, U> {
    fn of(raw: Raw) -> Self {
        Self { raw, port: PhantomData, usage: PhantomData }
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

    /// Sets the delay between the start of the container and the first attempt, in whole seconds, at least one.
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.raw.initial_delay_seconds = Some(seconds(delay));
        self
    }
}

/// Returns whole seconds, at least one.
pub(super) fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}
