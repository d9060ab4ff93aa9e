//! Merges two changed copies of a Kubernetes manifest, as gitcd merges two branches.
//!
//! ```text
//! cargo run -p gitcd-merge --example three_way -- BASE OURS THEIRS
//! ```
//!
//! Prints the merged manifest, and to standard error each field that both sides changed. Exits with 1 if there is one.

use std::process::ExitCode;

use gitcd_merge::schema::Schemas;
use gitcd_merge::{Outcome, Policy, Side, merge};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [base, ours, theirs] = &paths[..] else { return Err("give three files: BASE OURS THEIRS".into()) };
    let read = |path: &String| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
    let (base, ours, theirs) = (read(base)?, read(ours)?, read(theirs)?);
    let merged = merge(&Schemas::builtin(), Policy::Later, Some(&base), Some(Side::of(&ours)), Some(Side::of(&theirs)));
    let text = match merged.outcome {
        Outcome::Ours => ours,
        Outcome::Theirs => theirs,
        Outcome::New(value) => value,
        Outcome::Deleted => Vec::new(),
    };
    print!("{}", String::from_utf8_lossy(&text));
    for conflict in &merged.conflicts {
        eprintln!("{conflict}");
    }
    Ok(if merged.conflicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
