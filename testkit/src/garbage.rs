//! Garbage collection as in a cluster: a kube-controller-manager process with only this controller.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::audit;
use crate::error::StartError;
use crate::guard::Program;
use crate::process::{READY_WITHIN, last_lines};
use crate::programs;
use crate::wait;

const NAME: &str = "kube-controller-manager";

/// A running garbage collector; killed when dropped.
#[derive(Debug)]
pub(crate) struct GarbageCollector {
    _program: Program,
}

impl GarbageCollector {
    /// Starts it beside a kube-apiserver, and waits until it watches.
    ///
    /// It discovers new kinds twice a minute, so install those first that it should know.
    pub(crate) async fn start(
        apiserver: &Path,
        folder: &Path,
        kubeconfig: &Path,
        audit_log: &Path,
    ) -> Result<Self, StartError> {
        let program = programs::controller_manager(apiserver)?;
        let (log, ended) = (folder.join("controllers.log"), folder.join("controllers.ended"));
        let mut command = Command::new(program);
        command.arg("--controllers=garbage-collector-controller").arg("--leader-elect=false");
        // It serves nothing, so it needs neither a port nor certificates.
        command.arg("--secure-port=0");
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        let program = Program::start(&command, &log, &ended).map_err(StartError::System)?;
        let deadline = Instant::now() + READY_WITHIN;
        let watches = |entry: &audit::Entry| entry.verb == "watch" && entry.user_agent.starts_with(NAME);
        while !audit::read(audit_log).iter().any(watches) {
            if ended.exists() {
                return Err(StartError::Ended { program: NAME, log: last_lines(&log) });
            }
            if Instant::now() > deadline {
                return Err(StartError::NotReady { program: NAME, within: READY_WITHIN, log: last_lines(&log) });
            }
            tokio::time::sleep(wait::LOOK_EVERY).await;
        }
        Ok(Self { _program: program })
    }
}
