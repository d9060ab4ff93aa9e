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
    let namespaces = read.iter().flat_map(|(_, text)| manifest::namespaces(text));
    let others: Vec<_> = definitions.iter().cloned().chain(namespaces).collect();
    let mut is_good = true;
    for (File { path, key }, text) in &read {
        let mut report = |finding: String, is_warning: bool| {
            trishanku_stdio::println!("{}: {finding}", path.display());
            is_good &= is_warning;
        };
        if let Some(key) = key {
            manifest::of_branch(&schemas, key, text).iter().for_each(|f| report(f.to_string(), f.is_warning));
        } else {
            let findings = trishanku_lint::lint_with(text, &others).with_context(|| path.display().to_string())?;
            findings.iter().for_each(|finding| report(finding.to_string(), false));
            manifest::of_manifest(&schemas, text).iter().for_each(|f| report(f.to_string(), f.is_warning));
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rejects manifests with unknown fields, which are probably misspelt and would be ignored. Other errors are found when the
/// files are read, and kinds of other projects are not run.
pub(crate) fn reject_unknown_fields(files: &[PathBuf]) -> anyhow::Result<()> {
    let schemas = Schemas::builtin();
    let mut found = Vec::new();
    for path in files {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let file = path.display();
        let findings = trishanku_lint::lint(&text).unwrap_or_default();
        let unknown = findings.iter().filter(|finding| finding.is_unknown_field() && !finding.is_of_other_project());
        found.extend(unknown.map(|finding| format!("\n  {file}: {finding}")));
        let unknown = manifest::unknown_fields(&schemas, &text);
        found.extend(unknown.iter().map(|finding| format!("\n  {file}: {finding}")));
    }
    anyhow::ensure!(found.is_empty(), "nothing was started, since manifests have unknown fields:{}", found.concat());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.org}
spec:
  group: example.org
  names: {kind: Fleet}
  versions:
  - name: v1
    served: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {gitcd: {type: object}}}}}}
---
{apiVersion: example.org/v1, kind: Fleet, metadata: {name: f}, spec: {theirTypo: 1}}
---
{apiVersion: example.com/v1, kind: AutomatedMerge, metadata: {name: g}, spec: {theirField: 1}}
";
    const OURS: &str = "
---
apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: a}
spec: {skip: {app: true}, ourTypo: {}}
";

    #[test]
    fn unknown_fields_of_other_projects_do_not_stop_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.yaml");
        std::fs::write(&file, THEIRS).unwrap();
        let found = trishanku_lint::lint(THEIRS).unwrap();
        assert!(
            found.iter().any(|finding| finding.field == "spec.theirTypo" && finding.is_unknown_field()),
            "{found:?}"
        );
        reject_unknown_fields(std::slice::from_ref(&file)).unwrap();
        std::fs::write(&file, format!("{THEIRS}{OURS}")).unwrap();
        let said = reject_unknown_fields(&[file]).unwrap_err().to_string();
        assert!(said.contains("spec.ourTypo") && !said.contains("their"), "{said}");
    }
}
