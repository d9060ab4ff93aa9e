//! The kubectl plugin: its name, and its manifest for krew.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TAG: &str = "v1.2.3";

/// Renders the template as krew-release-bot does, with a made-up hash.
fn rendered() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/krew/trishanku.yaml");
    let template = std::fs::read_to_string(path).expect("the template can be read");
    let line = |line: &str| match line.trim_start().strip_prefix("{{addURIAndSha \"") {
        Some(rest) => {
            let indent = &line[..line.len() - line.trim_start().len()];
            let url = rest.strip_suffix("\" .TagName }}").expect("the address, then the tag");
            format!("{indent}uri: {url}\n{indent}sha256: {}", "0a".repeat(32))
        }
        None => line.to_owned(),
    };
    let lines: Vec<_> = template.lines().map(line).collect();
    lines.join("\n").replace("{{ .TagName }}", TAG)
}

/// <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/> and krew's `internal/index/validation`.
#[test]
fn the_manifest_has_the_fields_that_krew_requires() {
    let manifest: Value = serde_saphyr::from_str(&rendered()).expect("it is YAML");
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"trishanku".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], TAG);
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let short = text(&spec["shortDescription"]);
    assert!(!short.is_empty() && short.len() <= 50 && !short.contains('\n') && !short.ends_with('.'), "{short}");
    assert!(text(&spec["description"]).lines().all(|line| line.len() <= 80));
    assert!(text(&spec["homepage"]).starts_with("https://"));
    let known = ["version", "homepage", "shortDescription", "description", "caveats", "platforms"];
    assert!(spec.as_object().expect("a map").keys().all(|name| known.contains(&name.as_str())), "{spec}");
    let platforms = spec["platforms"].as_array().expect("a list");
    assert!(!platforms.is_empty());
    for platform in platforms {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (text(&labels["os"]), text(&labels["arch"]));
        assert!(["linux", "darwin", "windows"].contains(&os.as_str()) && ["amd64", "arm64"].contains(&arch.as_str()));
        let uri = text(&platform["uri"]);
        assert!(
            uri.starts_with("https://") && uri.contains(TAG) && uri.ends_with(&format!("-{os}-{arch}.tar.gz")),
            "{uri}"
        );
        let sha = text(&platform["sha256"]);
        assert!(sha.len() == 64 && sha.chars().all(|c| c.is_ascii_hexdigit()), "{sha}");
        let bin = text(&platform["bin"]);
        let files = platform["files"].as_array().expect("a list");
        assert!(
            files.iter().any(|file| file["from"] == bin.as_str() && file["to"] == "."),
            "{bin} is installed: {platform}"
        );
        assert!(files.iter().any(|file| file["from"] == "LICENSE"), "krew requires the licence: {platform}");
        let known = ["selector", "uri", "sha256", "bin", "files"];
        assert!(platform.as_object().expect("a map").keys().all(|name| known.contains(&name.as_str())), "{platform}");
    }
}

#[test]
fn as_a_plugin_its_help_and_errors_name_kubectl() {
    let folder = tempfile::tempdir().expect("the temp folder is writable");
    let plugin = folder.path().join("kubectl-trishanku");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_trishanku"), &plugin).expect("the folder is writable");
    let run = |args: &[&str]| {
        let mut command = Command::new(&plugin);
        command.args(args).env("HOME", folder.path()).env_remove("XDG_DATA_HOME").env_remove("GITCD_REPO");
        let output = command.output().expect("it is executable");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, help, _) = run(&["undo", "--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: kubectl trishanku undo"), "{help}");
    assert!(help.contains("\n  kubectl trishanku undo --since=10m"), "{help}");
    assert!(!help.contains("\n  trishanku "), "{help}");
    let (code, _, error) = run(&["undo", "--since=10m"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("set --repo or GITCD_REPO"), "{error}");
}
