//! `kubectl trishanku`: the same program under the name by which kubectl finds a plugin on PATH.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>.

use std::ffi::OsStr;
use std::path::Path;

use clap::Command;

/// The name of the executable, which kubectl runs for `kubectl trishanku`.
const FILE: &str = "kubectl-trishanku";
/// The name of the program itself.
const NAME: &str = "trishanku";

/// Returns how users call the program that was started as `program`.
fn name_of(program: Option<&OsStr>) -> &'static str {
    let stem = program.and_then(|program| Path::new(program).file_stem());
    if stem.is_some_and(|stem| stem == FILE) { "kubectl trishanku" } else { NAME }
}

/// Returns how users call this program: `trishanku`, or `kubectl trishanku`.
pub(crate) fn name() -> &'static str {
    name_of(std::env::args_os().next().as_deref())
}

/// Returns whether kubectl started this program.
pub(crate) fn is_plugin() -> bool {
    name() != NAME
}

/// Names the program in all help texts as users call it.
pub(crate) fn named(command: Command) -> Command {
    if is_plugin() { renamed(command.bin_name(name()), name()) } else { command }
}

fn renamed(command: Command, name: &str) -> Command {
    let help = command.get_after_help().map(|help| {
        // Examples are on lines of their own, or in backticks.
        let text = help.to_string();
        text.replace("  trishanku ", &format!("  {name} ")).replace("`trishanku ", &format!("`{name} "))
    });
    let command = match help {
        Some(help) => command.after_help(help),
        None => command,
    };
    command.mut_subcommands(|sub| renamed(sub, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_follows_the_name_of_the_executable() {
        for (program, expected) in [
            ("/usr/local/bin/kubectl-trishanku", "kubectl trishanku"),
            ("kubectl-trishanku", "kubectl trishanku"),
            ("./trishanku", "trishanku"),
            ("/opt/kubectl-trishanku/trishanku", "trishanku"),
        ] {
            assert_eq!(name_of(Some(OsStr::new(program))), expected, "{program}");
        }
        assert_eq!(name_of(None), "trishanku");
    }

    #[test]
    fn examples_are_renamed_in_all_subcommands() {
        let sub = Command::new("sub").after_help("Examples:\n  trishanku sub a   see `trishanku log`\n");
        let mut command = renamed(Command::new(NAME).after_help("  trishanku up").subcommand(sub), "kubectl trishanku");
        let help = command.render_long_help().to_string();
        assert!(help.contains("  kubectl trishanku up"), "{help}");
        let sub = command.find_subcommand_mut("sub").expect("it has one").render_long_help().to_string();
        assert!(sub.contains("  kubectl trishanku sub a   see `kubectl trishanku log`"), "{sub}");
    }
}
