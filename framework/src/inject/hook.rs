//! Lifecycle hooks, which kubelet runs when a container starts or stops.

use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ExecAction, LifecycleHandler, SleepAction};

use super::http::HttpGet;
use super::port::Port;
use super::probe::seconds;

/// The action of a lifecycle hook of a container: for [`post_start`](super::Container::post_start) and
/// [`pre_stop`](super::Container::pre_stop).
#[derive(Clone, Debug)]
#[must_use]
pub struct LifecycleHook<'c, 'p> {
    pub(super) raw: LifecycleHandler,
    port: PhantomData<Port<'c, 'p>>,
}

impl<'c, 'p> LifecycleHook<'c, 'p> {
    fn of(raw: LifecycleHandler) -> Self {
        Self { raw, port: PhantomData }
    }

    /// Runs a command in the container.
    pub fn exec<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let exec = ExecAction { command: Some(command.into_iter().map(Into::into).collect()) };
        Self::of(LifecycleHandler { exec: Some(exec), ..LifecycleHandler::default() })
    }

    /// Sends a GET without TLS to a port of the container. `get` is a path, or an [`HttpGet`] with headers.
    pub fn http(port: &Port<'c, 'p>, get: impl Into<HttpGet>) -> Self {
        let http_get = Some(get.into().action(port, None));
        Self::of(LifecycleHandler { http_get, ..LifecycleHandler::default() })
    }

    /// Sends a GET with TLS to a port of the container. The certificate is not verified. `get` is a path, or an [`HttpGet`]
    /// with headers.
    pub fn https(port: &Port<'c, 'p>, get: impl Into<HttpGet>) -> Self {
        let http_get = Some(get.into().action(port, Some("HTTPS")));
        Self::of(LifecycleHandler { http_get, ..LifecycleHandler::default() })
    }

    /// Waits, in whole seconds, at least one. The image needs no `sleep` for it.
    ///
    /// If it is longer than the pod's termination grace period, that is a collision: the API server would reject the pod.
    pub fn sleep(duration: Duration) -> Self {
        let sleep = SleepAction { seconds: seconds(duration).into() };
        Self::of(LifecycleHandler { sleep: Some(sleep), ..LifecycleHandler::default() })
    }
}
