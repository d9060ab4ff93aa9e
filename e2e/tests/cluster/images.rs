//! The contents of the images.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::nodes::archives;
use trishanku_e2e::nodes::kubectl::said;

use crate::world::World;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "busybox"];

/// No shell, an unprivileged user, a list of contents; and Git only where it is needed.
pub(crate) fn images_have_no_shell_run_as_nobody_and_list_what_they_consist_of(_: &Arc<World>) -> anyhow::Result<()> {
    let archives = archives()?;
    for (name, has_git) in [("gitcd", true), ("manager", false), ("trishanku", false)] {
        let is_it = |path: &&std::path::PathBuf| path.file_stem().is_some_and(|stem| stem == name);
        let archive = archives.iter().find(is_it).with_context(|| format!("no archive of {name}"))?;
        let manifest: Value = serde_json::from_str(&read(archive, "manifest.json")?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ensure!(text(&manifest[0]["RepoTags"][0]) == format!("ghcr.io/trishanku-org/{name}:0.1.0"), "{manifest}");
        let image: Value = serde_json::from_str(&read(archive, &text(&manifest[0]["Config"]))?)?;
        ensure!(image["config"]["User"] == "65532:65532", "{name} runs as {}", image["config"]["User"]);
        for label in ["title", "description", "version", "revision", "created", "source", "licenses"] {
            let label = format!("org.opencontainers.image.{label}");
            ensure!(!text(&image["config"]["Labels"][&label]).is_empty(), "{name} has no label {label}");
        }
        let mut files = String::new();
        for layer in manifest[0]["Layers"].as_array().into_iter().flatten() {
            let layer = text(layer);
            let mut unpack = Command::new("sh");
            // The layer is an archive in the image's archive.
            unpack.args(["-c", r#"tar -xOf "$1" "$2" | tar -t"#, "sh"]).arg(archive).arg(&layer);
            files += &said(&mut unpack, "")?;
        }
        let programs: Vec<_> = files.lines().filter_map(|file| Path::new(file).file_name()?.to_str()).collect();
        let shells: Vec<_> = SHELLS.iter().filter(|shell| programs.contains(shell)).collect();
        ensure!(shells.is_empty(), "{name} has shells: {shells:?}");
        ensure!(programs.contains(&"git") == has_git, "{name} must have Git: {has_git}");
        ensure!(programs.contains(&"ca-certificates.crt"), "{name} has no CA certificates");

        let list = archive.with_file_name(format!("{name}.spdx.json"));
        ensure!(files.contains(&format!("usr/share/sbom/{name}.spdx.json")), "{name} has no SBOM");
        let list: Value = serde_json::from_str(&std::fs::read_to_string(&list)?)?;
        ensure!(list["spdxVersion"] == "SPDX-2.3", "{name}: {}", list["spdxVersion"]);
        let packages = list["packages"].as_array().context("the SBOM has no packages")?;
        let has = |package: &str, kind: &str| {
            packages.iter().any(|found| {
                let locator = text(&found["externalRefs"][0]["referenceLocator"]);
                found["name"] == package && locator.starts_with(kind)
            })
        };
        ensure!(has("tokio", "pkg:cargo/tokio@"), "the SBOM of {name} lacks tokio");
        let unsure: Vec<_> = packages
            .iter()
            .filter(|found| {
                text(&found["externalRefs"][0]["referenceLocator"]).starts_with("pkg:cargo/")
                    && found["licenseDeclared"] == "NOASSERTION"
            })
            .collect();
        ensure!(unsure.is_empty(), "{name}: unknown licences of {unsure:?}");
    }
    Ok(())
}

fn read(archive: &Path, file: &str) -> anyhow::Result<String> {
    said(Command::new("tar").args(["-xOf"]).arg(archive).arg(file), "")
}
