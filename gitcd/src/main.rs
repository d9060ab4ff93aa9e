//! The `gitcd` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    match gitcd::cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gitcd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
