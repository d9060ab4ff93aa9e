//! The configuration file: defaults for flags.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::Value;

/// The command with defaults from a file, and the file with the flags in it, if there is one.
type Defaulted = (clap::Command, Option<(PathBuf, Vec<String>)>);

/// Uses the file named by `--config` or `GITCD_CONFIG` for the defaults of flags. Flags and environment variables take
/// precedence.
pub(super) fn with_defaults(mut command: clap::Command, args: &[OsString]) -> anyhow::Result<Defaulted> {
    let Some(path) = path(args) else { return Ok((command, None)) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("--config {}", path.display()))?;
    // Flags get the text as written: `yes` stays `yes`.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let settings: serde_json::Map<String, Value> = serde_saphyr::from_str_with_options(&text, options)
        .with_context(|| format!("--config {}: not a YAML map", path.display()))?;
    let mut flags = Vec::new();
    for (flag, value) in &settings {
        let flag = flag.clone();
        let set = scalar(&flag, value).and_then(|text| with_default(command, &flag, &text));
        command = set.with_context(|| format!("--config {}: {flag}", path.display()))?;
        flags.push(flag);
    }
    Ok((command, Some((path, flags))))
}

fn with_default(mut command: clap::Command, flag: &str, text: &str) -> anyhow::Result<clap::Command> {
    let subcommands = command.get_subcommands().filter(|sub| named(sub, flag).is_some());
    let names: Vec<_> = subcommands.map(|sub| sub.get_name().to_owned()).collect();
    if names.is_empty() && named(&command, flag).is_none() {
        bail!("there is no such flag");
    }
    // Default values must live as long as the command: the program.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    for name in names {
        let sub = command.find_subcommand(&name).expect("its name was just listed");
        let id = check(named(sub, flag).expect("it has the flag"), text)?;
        command = command.mut_subcommand(&name, |sub| sub.mut_arg(&id, |arg| arg.default_value(text)));
    }
    if let Some(arg) = named(&command, flag) {
        let id = check(arg, text)?;
        command = command.mut_arg(&id, |arg| arg.default_value(text));
    }
    Ok(command)
}

/// Returns the flag with this name. A file cannot name another file.
fn named<'a>(command: &'a clap::Command, flag: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(flag) && flag != "config")
}

/// Refuses a value that the flag would not accept, while its origin is known. Returns the ID of the flag.
fn check(flag: &clap::Arg, text: &str) -> anyhow::Result<clap::Id> {
    let id = flag.get_id().clone();
    if !flag.get_action().takes_values() {
        return super::boolean(text).map(|_| id).map_err(anyhow::Error::msg);
    }
    // A flag of its own: without the other flags of the command, which this one may require.
    let alone = clap::Command::new("gitcd").no_binary_name(true).disable_help_flag(true);
    let value = clap::Arg::new("value").allow_hyphen_values(true).value_parser(flag.get_value_parser().clone());
    let checked = alone.arg(value).try_get_matches_from([text]);
    checked.map(|_| id).map_err(|error| match error.get(clap::error::ContextKind::ValidValue) {
        Some(valid) => anyhow::anyhow!("{text:?} is not one of {valid}"),
        None => anyhow::anyhow!(
            "{text:?}: {}",
            error.source().map_or_else(|| error.kind().to_string(), ToString::to_string)
        ),
    })
}

/// Formats a scalar as it is, a map as `name=value,…`, a list with the flag's own separator.
fn scalar(flag: &str, value: &Value) -> anyhow::Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let separator = if flag.ends_with("urls") { ";" } else { ":" };
            items.iter().map(|item| scalar(flag, item)).collect::<anyhow::Result<Vec<_>>>()?.join(separator)
        }
        Value::Object(map) => {
            let part = |(name, value): (&String, &Value)| Ok(format!("{name}={}", scalar(flag, value)?));
            map.iter().map(part).collect::<anyhow::Result<Vec<_>>>()?.join(",")
        }
        Value::Null => bail!("a value is missing or of a type that no flag has"),
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
