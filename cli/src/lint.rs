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
}

/// Says what is wrong, one finding a line; ends with 1 if anything is.
pub(crate) fn run(options: &Lint) -> anyhow::Result<ExitCode> {
    let mut count = 0;
    for path in
        options.filename.iter().map(|path| files(path)).collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten()
    {
        let text = if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        } else {
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
        };
        for finding in trishanku_lint::lint(&text).with_context(|| path.display().to_string())? {
            println!("{}: {finding}", path.display());
            count += 1;
        }
    }
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file as it is, or the manifests of a folder in the order of their names.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().with_context(|| format!("cannot read {}", path.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| {
        file.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
    });
    files.sort();
    Ok(files)
}
