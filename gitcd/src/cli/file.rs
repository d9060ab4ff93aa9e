//! The configuration file: defaults for flags.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Gives the flags the defaults that the file named by `--config` or `GITCD_CONFIG` has. Flags and environment
/// variables win over them.
pub(super) fn with_defaults(command: clap::Command, args: &[OsString]) -> anyhow::Result<clap::Command> {
    let Some(path) = path(args) else { return Ok(command) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("--config {}", path.display()))?;
    let settings: serde_norway::Mapping =
        serde_norway::from_str(&text).with_context(|| format!("--config {}: not a YAML map", path.display()))?;
    let mut command = command;
    for (key, value) in &settings {
        let flag = key.as_str().unwrap_or_default().to_owned();
        let text = scalar(&flag, value).with_context(|| format!("--config {}: {flag}", path.display()))?;
        command = with_default(command, &flag, &text, &path)?;
    }
    Ok(command)
}

fn with_default(mut command: clap::Command, flag: &str, text: &str, path: &Path) -> anyhow::Result<clap::Command> {
    let id = flag.replace('-', "_");
    let mut known = false;
    // Default values must live as long as the command: the program.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(&name, |sub| {
            let has = sub.get_arguments().any(|arg| arg.get_id() == &id);
            known |= has;
            if has { sub.mut_arg(&id, |arg| arg.default_value(text)) } else { sub }
        });
    }
    if command.get_arguments().any(|arg| arg.get_id() == &id) && id != "config" {
        known = true;
        command = command.mut_arg(&id, |arg| arg.default_value(text));
    }
    if !known {
        bail!("--config {}: there is no flag --{flag}", path.display());
    }
    Ok(command)
}

/// A scalar as it is, a map as `name=value,…`, a list as the flag's own separator wants it.
fn scalar(flag: &str, value: &serde_norway::Value) -> anyhow::Result<String> {
    use serde_norway::Value;
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Sequence(items) => {
            let separator = if flag.ends_with("urls") { ";" } else { ":" };
            items.iter().map(|item| scalar(flag, item)).collect::<anyhow::Result<Vec<_>>>()?.join(separator)
        }
        Value::Mapping(map) => {
            let part =
                |(name, value): (&Value, &Value)| Ok(format!("{}={}", scalar(flag, name)?, scalar(flag, value)?));
            map.iter().map(part).collect::<anyhow::Result<Vec<_>>>()?.join(",")
        }
        Value::Null | Value::Tagged(_) => bail!("a value is missing or of a kind that no flag has"),
    })
}

fn path(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("GITCD_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}
