//! `trishanku kubectl`: the kubectl beside the other programs, with this control plane's kubeconfig.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use trishanku::plane::{Assets, Home};
use trishanku::status::{self, Health};

/// Replaces this process by kubectl; returns only to say why that did not work.
pub(crate) fn become_kubectl(home: &Home, args: &[OsString], program: &str) -> anyhow::Error {
    let kubeconfig = home.kubeconfig();
    if !kubeconfig.exists() {
        let dir = home.dir().display();
        return anyhow::anyhow!("there is no control plane in {dir}; bring one up with `{program} up`");
    }
    // What kubectl says of a server that is not there does not help. Some of its commands need none, such as `config`.
    let needs_server = !matches!(
        args.first().and_then(|word| word.to_str()),
        None | Some("config" | "version" | "help" | "completion" | "--help" | "-h" | "kustomize" | "plugin")
    );
    if needs_server && status::read(home).is_ok_and(|report| report.health == Health::Stopped) {
        let dir = home.dir().display();
        return anyhow::anyhow!("the control plane in {dir} does not run; start it with `{program} up`");
    }
    // Any kubectl is better than none: it tolerates other versions of the apiserver.
    let kubectl = Assets::find(None).map_or_else(|_| PathBuf::from("kubectl"), |assets| assets.program("kubectl"));
    let error = Command::new(&kubectl).args(args).env("KUBECONFIG", kubeconfig).exec();
    let kubectl = kubectl.display();
    anyhow::anyhow!("cannot start {kubectl}: {error}; `make assets` provides one")
}
