//! `trishanku kubectl`: runs the kubectl beside the other programs with this control plane's kubeconfig.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use trishanku::heavens::HeavenRecord;
use trishanku::plane::{Assets, Home, State};
use trishanku::status::{self, Health};

/// Replaces this process with kubectl; returns only if that fails.
pub(crate) fn become_kubectl(home: &Home, heaven: Option<&str>, args: &[OsString], program: &str) -> anyhow::Error {
    let kubeconfig = match heaven.map(|name| kubeconfig_of(home, name)) {
        None => home.kubeconfig(),
        Some(Ok(kubeconfig)) => kubeconfig,
        Some(Err(error)) => return error,
    };
    if !kubeconfig.exists() {
        let dir = home.dir().display();
        return anyhow::anyhow!("there is no control plane in {dir}; bring one up with `{program} up`");
    }
    // kubectl's error for a stopped server would not help. Some of its commands need no server, such as `config`.
    let needs_server = !matches!(
        args.first().and_then(|word| word.to_str()),
        None | Some("config" | "version" | "help" | "completion" | "--help" | "-h" | "kustomize" | "plugin")
    );
    if needs_server && status::read(home).is_ok_and(|report| report.health == Health::Stopped) {
        let dir = home.dir().display();
        let start = State::load(&home.state_file()).unwrap_or_default().settings.form.command();
        return anyhow::anyhow!("the control plane in {dir} is not running; start it with `{program} {start}`");
    }
    // Any kubectl will do: it tolerates other versions of kube-apiserver.
    let kubectl = Assets::find(None).map_or_else(|_| PathBuf::from("kubectl"), |assets| assets.program("kubectl"));
    let error = Command::new(&kubectl).args(args).env("KUBECONFIG", kubeconfig).exec();
    let kubectl = kubectl.display();
    anyhow::anyhow!("cannot start {kubectl}: {error}; `make assets` provides one")
}

fn kubeconfig_of(home: &Home, name: &str) -> anyhow::Result<PathBuf> {
    let found = heaven(&State::load(&home.state_file())?, name)?;
    found.kubeconfig.ok_or_else(|| anyhow::anyhow!("{name} has no kube-apiserver"))
}

/// Finds a heaven or merge by its name.
pub(crate) fn heaven(state: &State, name: &str) -> anyhow::Result<HeavenRecord> {
    let found = state.heavens.iter().find(|heaven| heaven.name == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = state.heavens.iter().map(|heaven| heaven.name.as_str()).collect();
        anyhow::anyhow!("there is no heaven {name:?}, but {}", names.join(", "))
    })
}
