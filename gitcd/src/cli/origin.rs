//! Where the value of a flag came from, for messages about invalid ones.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use gitcd_server::config::ConfigError;

use super::etcd_flags;

/// Sources of flags' values. The command line, which the user sees, needs no mention.
#[derive(Debug)]
pub(super) struct Origins {
    args: Vec<OsString>,
    /// The configuration file and the flags in it.
    file: Option<(PathBuf, Vec<String>)>,
}

impl Origins {
    pub(super) fn new(args: &[OsString], file: Option<(PathBuf, Vec<String>)>) -> Self {
        Self { args: args.to_vec(), file }
    }

    /// Returns where `--flag` was set, unless that was on the command line.
    fn of(&self, flag: &str) -> Option<String> {
        let long = format!("--{flag}");
        let is_flag = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(&long));
        if self.args.iter().any(is_flag) {
            return None;
        }
        let variable = format!("GITCD_{}", flag.to_uppercase().replace('-', "_"));
        if std::env::var_os(&variable).is_some() {
            return Some(format!("the environment variable {variable}"));
        }
        let (path, flags) = self.file.as_ref()?;
        flags.iter().any(|set| set == flag).then(|| path.display().to_string())
    }

    /// Adds the origin of the value that clap refused.
    pub(super) fn of_refused(&self, mut error: clap::Error) -> clap::Error {
        let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
        let flag = argument.split([' ', '=']).next().unwrap_or_default().trim_start_matches('-').to_owned();
        if error.kind() == ErrorKind::UnknownArgument
            && let Some(remedy) = etcd_flags::remedy(&flag)
        {
            // A flag with a similar spelling is not the right one.
            error.remove(ContextKind::SuggestedArg);
            let tip = format!("--{flag} is a flag of etcd: {remedy}");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            return error;
        }
        if let Some(origin) = self.of(&flag) {
            let tip = format!("the value comes from {origin}");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        error
    }

    /// Adds the origin of the value that the command refused.
    pub(super) fn of_failed(&self, error: anyhow::Error) -> anyhow::Error {
        let flag = error.chain().find_map(|cause| cause.downcast_ref::<ConfigError>()).map(ConfigError::flag);
        match flag.and_then(|flag| self.of(flag)) {
            Some(origin) => error.context(format!("from {origin}")),
            None => error,
        }
    }
}
