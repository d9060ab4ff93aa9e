//! The programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// Returns the folder with `trishanku` and `gitcd`: the one named by the environment, or the build folder of this test after
/// building them, as tests of one package do not build the programs of another.
///
/// # Errors
/// If they cannot be built; the text has the output of cargo.
pub fn folder() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TRISHANKU_E2E_PROGRAMS") {
        return Ok(folder.into());
    }
    // <target>/<profile>/deps/<this test>
    let test = std::env::current_exe()?;
    let folder = test.ancestors().nth(2).context("the test is not two folders below its profile")?;
    let target = folder.parent().context("the profile has no parent folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Variables that cargo sets for this test. Build scripts that depend on them, such as ring's, would run again and
    // everything that depends on them would be rebuilt: minutes, each time.
    for (name, _) in std::env::vars_os() {
        let variable = name.to_string_lossy();
        if variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command
        // The same selection as `cargo test --workspace`, after which nothing is left to build. Without a test, dependencies
        // would be built once more with the features of the programs only.
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
