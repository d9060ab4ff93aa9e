//! The common inputs of all rendering.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::images::ImagePrograms;
use super::manifest::Data;
use super::secrets::Secrets;
use super::site::Site;
use crate::plane::components::Invocation;
use crate::plane::{Assets, Home};

/// A file with a value of a Secret, which is written again when the Secret changes.
#[derive(Clone, Debug)]
pub(super) struct SecretFile {
    pub(super) secret: String,
    pub(super) key: String,
    pub(super) path: PathBuf,
    pub(super) site: Site,
    /// Whether a user's container reads it, and must restart when it changes; kube-apiserver reloads its files.
    pub(super) is_users: bool,
}

/// The sources of programs, Secrets and `ConfigMap`s.
pub(super) struct RenderContext<'a> {
    pub(super) home: &'a Home,
    pub(super) assets: &'a Assets,
    pub(super) gitcd: &'a Path,
    pub(super) images: &'a ImagePrograms,
    pub(super) secrets: &'a Secrets,
    pub(super) config_maps: &'a BTreeMap<String, Data>,
    /// The files that show values of Secrets.
    pub(super) copies: RefCell<Vec<SecretFile>>,
}

/// The variables that processes inherit: those to find programs and to reach other hosts. Variables about a control
/// plane, such as `KUBECONFIG` and `GITCD_…`, are not inherited.
const INHERITED: [&str; 14] = [
    "PATH",
    "USER",
    "LANG",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST_BACKTRACE",
    "SSH_AUTH_SOCK",
];

impl RenderContext<'_> {
    /// The path of a program of the plan.
    pub(super) fn program(&self, name: &str, image: &str) -> PathBuf {
        if let Some(given) = self.images.given(image) {
            let given = &given.program;
            return if given.is_dir() { given.join(name) } else { given.clone() };
        }
        match name {
            "gitcd" => self.gitcd.into(),
            path if path.contains('/') => path.into(),
            other => self.assets.program(other),
        }
    }

    /// Records that a file shows a value of a Secret.
    pub(super) fn shows(&self, site: &Site, secret: &str, key: &str, path: PathBuf, is_users: bool) {
        let (secret, key) = (secret.to_owned(), key.to_owned());
        self.copies.borrow_mut().push(SecretFile { secret, key, path, site: site.clone(), is_users });
    }

    /// The environment of a heaven's processes, with their own variables.
    fn environment(site: &Site, own: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, OsString> {
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
        let usual =
            [("HOME".to_owned(), site.place.home.clone().into()), ("TMPDIR".to_owned(), site.temporary().into())];
        let own = own.into_iter().map(|(name, value)| (name, value.into()));
        inherited.chain(usual).chain(own).collect()
    }

    /// A program with its arguments, in a heaven's environment.
    pub(super) fn invocation(
        site: &Site,
        program: PathBuf,
        args: impl IntoIterator<Item = String>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Invocation {
        Invocation {
            program,
            args: args.into_iter().map(OsString::from).collect(),
            environment: Some(Self::environment(site, environment)),
            folder: Some(site.place.home.clone().into()),
        }
    }
}
