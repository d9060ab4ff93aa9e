//! Probes and lifecycle hooks of a container.

use super::Container;
use crate::inject::hook::LifecycleHook;
use crate::inject::kind::{LongRunning, Plain, Sidecar, StartedSidecar};
use crate::inject::probe::{ForReadiness, ForRestart, Probe};

impl<'c, 'p, K: LongRunning> Container<'c, 'p, K> {
    /// Adds the readiness probe, once: while it fails, the pod is not ready.
    pub fn readiness<U: ForReadiness>(self, probe: Probe<'c, 'p, U>) -> Self {
        self.once("readinessProbe", probe.raw, |raw| &mut raw.readiness_probe)
    }

    /// Adds the liveness probe, once: when it fails, the container is restarted.
    pub fn liveness<U: ForRestart>(self, probe: Probe<'c, 'p, U>) -> Self {
        self.once("livenessProbe", probe.raw, |raw| &mut raw.liveness_probe)
    }

    /// Adds what kubelet runs when the container has started, once. The container counts as running only after it; if it
    /// fails, the container is restarted.
    pub fn post_start(self, hook: LifecycleHook<'c, 'p>) -> Self {
        self.once("lifecycle.postStart", hook.raw, |raw| &mut raw.lifecycle.get_or_insert_default().post_start)
    }

    /// Adds what kubelet runs before it stops the container, once. Its time counts as part of the pod's termination grace
    /// period. It does not run if the container exits by itself.
    pub fn pre_stop(self, hook: LifecycleHook<'c, 'p>) -> Self {
        self.once("lifecycle.preStop", hook.raw, |raw| &mut raw.lifecycle.get_or_insert_default().pre_stop)
    }
}

impl<'c, 'p> Container<'c, 'p, Sidecar> {
    /// Adds the startup probe: later containers start only after it has succeeded. When it fails, the container is restarted.
    pub fn startup<U: ForRestart>(self, probe: Probe<'c, 'p, U>) -> Container<'c, 'p, StartedSidecar> {
        self.once("startupProbe", probe.raw, |raw| &mut raw.startup_probe).of_kind()
    }
}

impl<'c, 'p> Container<'c, 'p, Plain> {
    /// Adds the startup probe, once: other probes run only after it has succeeded. No container waits for it.
    pub fn startup<U: ForRestart>(self, probe: Probe<'c, 'p, U>) -> Self {
        self.once("startupProbe", probe.raw, |raw| &mut raw.startup_probe)
    }
}
