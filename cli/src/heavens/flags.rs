//! Removes and adds flags of single processes, without changing manifests.

use std::ffi::OsString;
use std::str::FromStr;

use super::error::RenderError;
use crate::plane::components::Component;

/// `PROCESS=--flag` or `PROCESS=--flag=value`, where PROCESS is a container or another process, optionally as
/// `HEAVEN/PROCESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagOption {
    process: String,
    flag: String,
}

impl FromStr for FlagOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((process, flag)) if !process.is_empty() && flag.starts_with('-') => {
                Ok(Self { process: process.to_owned(), flag: flag.to_owned() })
            }
            _ => Err("expected PROCESS=--flag, such as kube-scheduler=--v or my-heaven/app=--v=4".to_owned()),
        }
    }
}

impl std::fmt::Display for FlagOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.process, self.flag)
    }
}

impl FlagOption {
    fn is_of(&self, component: &Component) -> bool {
        let step = component.name.rsplit('/').next().unwrap_or_default();
        component.name == self.process || step == self.process
    }

    /// The flag without its value.
    fn name(&self) -> &str {
        self.flag.split('=').next().unwrap_or_default()
    }

    fn fits(&self, argument: &OsString) -> bool {
        let argument = argument.to_string_lossy();
        argument == self.flag || argument.split('=').next() == Some(self.name())
    }

    fn wrong(&self, option: &'static str, problem: String) -> RenderError {
        RenderError::Option { option, value: self.to_string(), problem }
    }
}

/// Removes flags, then adds others; an added flag replaces an existing one.
///
/// # Errors
/// [`RenderError::Option`] if there is no such process, or it does not have the flag to remove.
pub(super) fn apply(
    components: &mut [Component],
    dropped: &[FlagOption],
    added: &[FlagOption],
) -> Result<(), RenderError> {
    let names = components.iter().map(|component| component.name.clone()).collect::<Vec<_>>().join(", ");
    for (option, flags) in [("drop-flag", dropped), ("add-flag", added)] {
        for flag in flags {
            let mut of = components.iter_mut().filter(|component| flag.is_of(component)).peekable();
            if of.peek().is_none() {
                return Err(flag.wrong(option, format!("there is no process of this name; there are {names}")));
            }
            let mut found = false;
            for component in of {
                let args = &mut component.run.args;
                let before = args.len();
                args.retain(|argument| !flag.fits(argument));
                found |= args.len() < before;
                if option == "add-flag" {
                    args.push(flag.flag.clone().into());
                }
            }
            if !found && option == "drop-flag" {
                return Err(flag.wrong(option, "it has no such flag".to_owned()));
            }
        }
    }
    Ok(())
}
