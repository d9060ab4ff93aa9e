//! Makes Git merge the files of a repository by their fields.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use git2::{ConfigLevel, Repository};

const NAME: &str = "merge.trishanku.name";
const DRIVER: &str = "merge.trishanku.driver";
/// Disables the detection of renames: a file's path identifies its object, so a similar file is another object. Git's `ort`
/// strategy respects it from 2.50 on; before, the driver refuses what Git takes for a rename.
const RENAMES: &str = "merge.renames";
const ATTRIBUTES: &str = "* merge=trishanku";

/// Writes the repository's configuration and `info/attributes`, but no tracked file.
pub(super) fn install(repo: Option<&Path>) -> anyhow::Result<()> {
    let start = repo.unwrap_or(Path::new("."));
    let none = || format!("no repository at {}: name a clone with --repo, or run this in one", start.display());
    let repository = Repository::discover(start).map_err(|_| anyhow::Error::msg(none()))?;
    let driver = format!("{} merge-file --driver --key %P %A %O %B", program()?);
    let mut config = repository.config()?.open_level(ConfigLevel::Local)?;
    config.set_str(NAME, "objects by their fields (gitcd merge-file)")?;
    config.set_str(DRIVER, &driver)?;
    config.set_bool(RENAMES, false)?;
    // All work trees share it.
    let attributes = repository.commondir().join("info/attributes");
    let before = match std::fs::read_to_string(&attributes) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", attributes.display()))?,
    };
    if !before.lines().any(|line| line.trim() == ATTRIBUTES) {
        // First, so that existing lines still win.
        write(&attributes, &format!("{ATTRIBUTES}\n{before}"))?;
    }
    trishanku_stdio::println!(
        "{}: Git now merges by fields",
        repository.workdir().unwrap_or(repository.path()).display()
    );
    trishanku_stdio::println!("  {DRIVER} = {driver}");
    trishanku_stdio::println!("  {RENAMES} = false");
    trishanku_stdio::println!("  {}: {ATTRIBUTES}", attributes.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().expect("info/attributes has a parent folder");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Returns how a shell calls this program: by its name if that finds it, else by its path.
fn program() -> anyhow::Result<String> {
    let own = std::env::current_exe()?.canonicalize()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("gitcd")).find(|file| file.is_file());
    if found.and_then(|found| found.canonicalize().ok()).as_ref() == Some(&own) {
        return Ok("gitcd".into());
    }
    let own = own.to_str().context("the path of this program is not UTF-8")?;
    // Git expands placeholders that start with a per cent sign, then a shell parses the line.
    Ok(format!("'{}'", own.replace('\'', r"'\''").replace('%', "%%")))
}
