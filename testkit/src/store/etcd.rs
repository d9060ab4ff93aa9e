//! A single-member etcd in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Config;

use crate::process::Server;

/// Settings of an etcd.
pub(crate) struct Etcd<'a> {
    pub(crate) program: PathBuf,
    /// Folder of its log and data.
    pub(crate) folder: &'a Path,
}

pub(crate) fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Server for Etcd<'_> {
    const NAME: &'static str = "etcd";
    const READY: &'static str = "/readyz";

    fn folder(&self) -> &Path {
        self.folder
    }

    fn command(&self, port: u16) -> std::io::Result<Command> {
        let mut command = Command::new(&self.program);
        let mut data = std::ffi::OsString::from("--data-dir=");
        data.push(self.folder.join("etcd"));
        command.arg(data);
        let url = url(port);
        command.arg(format!("--listen-client-urls={url}")).arg(format!("--advertise-client-urls={url}"));
        // A single member has no peers, so any free port will do.
        command.arg("--listen-peer-urls=http://127.0.0.1:0");
        // The data does not outlive the test.
        command.arg("--unsafe-no-fsync").arg("--log-level=warn");
        Ok(command)
    }

    fn config(&self, port: u16) -> Config {
        let mut config = Config::new(url(port).parse().expect("the address is valid with any port"));
        config.default_retry = false;
        config
    }
}
