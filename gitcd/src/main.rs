//! The `gitcd` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The programs that this one starts end with it.
    if let Some(code) = gitcd::guard() {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    // `git` runs this program as its credential helper and to start ssh.
    if let Some(code) = gitcd::pull::program::helper() {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    match gitcd::cli::run() {
        Ok(code) => code,
        Err(error) => {
            trishanku_stdio::eprintln!("gitcd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
