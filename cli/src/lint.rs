//! `trishanku lint`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

/// Which manifests.
#[derive(Debug, clap::Args)]
pub(crate) struct Lint {
    /// Manifests, folders with them, or - for standard input; may be given several times
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,
    /// Look into folders in folders, too
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Says what is wrong, one finding a line; ends with 1 if anything is.
pub(crate) fn run(options: &Lint) -> anyhow::Result<ExitCode> {
    let mut count = 0;
    let mut paths = Vec::new();
    for path in &options.filename {
        files(path, options.recursive, &mut paths)?;
    }
    for path in paths {
        let text = if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        } else {
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
        };
        for finding in trishanku_lint::lint(&text).with_context(|| path.display().to_string())? {
            trishanku_stdio::println!("{}: {finding}", path.display());
            count += 1;
        }
    }
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file as it is, or the manifests of a folder in the order of their names; of folders in it after those, if they are asked for. Links in it that lead to folders are not
/// followed: they may lead back.
fn files(path: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let read = || format!("cannot read {}", path.display());
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in path.read_dir().with_context(read)? {
        let entry = entry.with_context(read)?;
        let file = entry.path();
        if entry.file_type().with_context(read)?.is_dir() {
            folders.push(file);
        } else if file.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known)) {
            files.push(file);
        }
    }
    files.retain(|file| !file.is_dir());
    files.sort();
    found.append(&mut files);
    folders.sort();
    folders.iter().filter(|_| recursive).try_for_each(|folder| self::files(folder, recursive, found))
}
