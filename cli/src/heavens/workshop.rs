//! What everything that is rendered has in common.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::images::ImagePrograms;
use super::manifest::Data;
use super::renewal::Shown;
use super::secrets::Secrets;
use super::site::Site;
use crate::plane::components::Invocation;
use crate::plane::{Assets, Home};

/// Where programs, Secrets and `ConfigMap`s come from.
pub(super) struct Workshop<'a> {
    pub(super) home: &'a Home,
    pub(super) assets: &'a Assets,
    pub(super) gitcd: &'a Path,
    pub(super) images: &'a ImagePrograms,
    pub(super) secrets: &'a Secrets,
    pub(super) config_maps: &'a BTreeMap<String, Data>,
    /// Which files show values of Secrets.
    pub(super) copies: RefCell<Vec<Shown>>,
}

/// What processes are given of our own environment: how to find programs, and how to reach others. What is said of a control plane by variables,
/// such as `KUBECONFIG` and `GITCD_…`, is not theirs.
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

impl Workshop<'_> {
    /// A program of a plan.
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

    /// Remembers that a file shows a value of a Secret.
    pub(super) fn shows(&self, site: &Site, secret: &str, key: &str, path: PathBuf, is_users: bool) {
        let (secret, key) = (secret.to_owned(), key.to_owned());
        self.copies.borrow_mut().push(Shown { secret, key, path, site: site.clone(), is_users });
    }

    /// The environment of a heaven's processes, with these variables.
    fn environment(site: &Site, own: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, OsString> {
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?)));
        let usual =
            [("HOME".to_owned(), site.place.home.clone().into()), ("TMPDIR".to_owned(), site.temporary().into())];
        let own = own.into_iter().map(|(name, value)| (name, value.into()));
        inherited.chain(usual).chain(own).collect()
    }

    /// A program with its arguments, in a heaven.
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
