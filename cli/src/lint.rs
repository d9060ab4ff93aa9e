//! `trishanku lint`.

mod files;
mod manifest;
mod template;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use gitcd::merge::schema::Schemas;

use self::files::File;

/// The manifests to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Lint {
    /// Manifests, folders with them, checkouts of branches, files of a branch, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,
    /// Also check folders in folders
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Prints the findings, one a line; exits with 1 if any is an error.
pub(crate) fn run(options: &Lint) -> anyhow::Result<ExitCode> {
    let builtin = Schemas::builtin();
    let mut files = Vec::new();
    for path in &options.filename {
        files::find(&builtin, path, options.recursive, &mut files)?;
    }
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let text = file.read()?;
        read.push((file, text));
    }
    let definitions: Vec<_> = read.iter().flat_map(|(_, text)| manifest::definitions(text)).collect();
    let (schemas, _) = builtin.with_crds(&definitions);
    let mut is_good = true;
    for (File { path, key }, text) in &read {
        let mut report = |finding: String, is_warning: bool| {
            trishanku_stdio::println!("{}: {finding}", path.display());
            is_good &= is_warning;
        };
        if let Some(key) = key {
            manifest::of_branch(&schemas, key, text).iter().for_each(|f| report(f.to_string(), f.is_warning));
        } else {
            let findings = trishanku_lint::lint(text).with_context(|| path.display().to_string())?;
            findings.iter().for_each(|finding| report(finding.to_string(), false));
            manifest::of_manifest(&schemas, text).iter().for_each(|f| report(f.to_string(), f.is_warning));
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rejects manifests with unknown fields, which are probably misspelt and would be ignored. Other errors are found when the
/// files are read.
pub(crate) fn reject_unknown_fields(files: &[PathBuf]) -> anyhow::Result<()> {
    let schemas = Schemas::builtin();
    let mut found = Vec::new();
    for path in files {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let file = path.display();
        let findings = trishanku_lint::lint(&text).unwrap_or_default();
        let unknown = findings.iter().filter(|finding| finding.is_unknown_field());
        found.extend(unknown.map(|finding| format!("\n  {file}: {finding}")));
        let unknown = manifest::unknown_fields(&schemas, &text);
        found.extend(unknown.iter().map(|finding| format!("\n  {file}: {finding}")));
    }
    anyhow::ensure!(found.is_empty(), "nothing was started, since manifests have unknown fields:{}", found.concat());
    Ok(())
}
