//! kube-controller-manager beside the kube-apiserver of the tests.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use trishanku::plane::Assets;

/// The controllers that the scenarios need.
const NAMES: [&str; 13] = [
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "endpointslice-controller",
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "resourcequota-controller",
    "clusterrole-aggregation-controller",
];

/// Ends the program when standard input closes, also if the test is killed.
const GUARD: &str = r#"
trap '' HUP INT TERM
exec 3<&0
"$@" </dev/null 3<&- & program=$!
read -r _ <&3
kill -KILL "$program"
wait "$program" 2>/dev/null
"#;

/// A running kube-controller-manager, which ends with the test process.
pub(crate) struct Controllers {
    _guard: Child,
    _ends_when_closed: ChildStdin,
}

impl Controllers {
    pub(crate) fn start(kubeconfig: &Path, folder: &Path) -> Self {
        let assets = Assets::find(None).expect("`hack/assets.sh` has made the programs");
        let log = std::fs::File::create(folder.join("controllers.log")).expect("the folder is writable");
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(assets.program("kube-controller-manager"));
        command.arg(format!("--controllers={}", NAMES.join(","))).arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--leader-elect=false", "--secure-port=0", "--resource-quota-sync-period=2s"]);
        let errors = log.try_clone().expect("the file is open");
        let mut guard = command
            .stdin(Stdio::piped())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(errors))
            .spawn()
            .expect("sh starts");
        let input = guard.stdin.take().expect("it is a pipe");
        Self { _guard: guard, _ends_when_closed: input }
    }
}
