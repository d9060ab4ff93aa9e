//! The programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The folder that holds `trishanku` and `gitcd`: the one named by the environment, else the build folder of this test after
/// building them, since tests of one package do not build the programs of another.
///
/// # Errors
/// If they cannot be built; the text has what cargo said.
pub fn folder() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TRISHANKU_E2E_PROGRAMS") {
        return Ok(folder.into());
    }
    // <target>/<profile>/deps/<this test>
    let test = std::env::current_exe()?;
    let folder = test.ancestors().nth(2).context("a test lies two folders below its profile's")?;
    let target = folder.parent().context("a profile lies below the target")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What cargo tells this test about itself. Build scripts that look at such variables, ring's among them, would run again, and
    // everything above them would be compiled again: minutes, each time.
    for (name, _) in std::env::vars_os() {
        let variable = name.to_string_lossy();
        if variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command
        // The selection that `cargo test --workspace` makes, so that after it nothing is left to build. Without any test, dependencies
        // would be built once more, with the features that they have in programs only.
        .args(["build", "--workspace", "--bins", "--test=control_plane"])
        .args(["--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "cannot build trishanku and gitcd:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(folder.into())
}
