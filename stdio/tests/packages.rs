//! Packages of the library crates, as crates.io would get them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Libraries for authors of controllers, who find them by a search and read them without this repository.
const FOR_AUTHORS: [&str; 2] = ["trishanku-framework", "trishanku-testkit"];
/// Limits of crates.io.
const MOST_KEYWORDS: usize = 5;
const LONGEST_KEYWORD: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace").to_owned()
}

/// Returns the packages that are published.
fn published() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let all = metadata["packages"].as_array().expect("there are packages");
    all.iter().filter(|package| package["publish"].is_null()).cloned().collect()
}

fn text<'v>(of: &'v Value, field: &str) -> &'v str {
    of[field].as_str().unwrap_or_default()
}

fn list(of: &Value) -> Vec<&str> {
    of.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten().filter(|dependency| dependency["kind"].is_null())
}

#[test]
fn each_package_says_what_it_is_and_its_documentation_can_be_built() {
    let packages = published();
    let names: BTreeSet<&str> = packages.iter().map(|package| text(package, "name")).collect();
    assert!(FOR_AUTHORS.iter().all(|name| names.contains(name)), "{names:?}");
    let mut wrong = Vec::new();
    for package in &packages {
        let name = text(package, "name");
        let mut check = |is_right: bool, what: &str| wrong.extend((!is_right).then(|| format!("{name}: {what}")));
        check(text(package, "description").len() > 20, "description: say what it is for");
        check(text(package, "license") == "Apache-2.0", "license");
        check(text(package, "repository").starts_with("https://"), "repository");
        check(!text(package, "rust_version").is_empty(), "rust-version");
        for dependency in dependencies(package).filter(|dependency| dependency["path"].is_string()) {
            let used = text(dependency, "name");
            check(names.contains(used), &format!("depends on {used}, which is not published"));
            check(text(dependency, "req") != "*", &format!("needs a version of {used} beside its path"));
        }
        // Without a version of Kubernetes, k8s-openapi does not compile, and no library selects one.
        let uses_kubernetes = dependencies(package).any(|dependency| text(dependency, "name") == "k8s-openapi");
        let documented = list(&package["metadata"]["docs"]["rs"]["features"]);
        let selects = documented.iter().any(|feature| feature.starts_with("k8s-openapi/v1_"));
        check(!uses_kubernetes || selects, "package.metadata.docs.rs.features: select a version of k8s-openapi");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn libraries_for_authors_are_found_and_have_their_readme_and_licence() {
    for package in published().iter().filter(|package| FOR_AUTHORS.contains(&text(package, "name"))) {
        let name = text(package, "name");
        let keywords = list(&package["keywords"]);
        let is_keyword = |keyword: &&str| keyword.len() <= LONGEST_KEYWORD && keyword.is_ascii();
        assert!(
            (1..=MOST_KEYWORDS).contains(&keywords.len()) && keywords.iter().all(is_keyword),
            "{name}: {keywords:?}"
        );
        assert!(!list(&package["categories"]).is_empty(), "{name}: categories");
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"], true, "{name}: document all features");
        let folder = PathBuf::from(text(package, "manifest_path")).with_file_name("");
        let readme = std::fs::read_to_string(folder.join(text(package, "readme"))).expect("it has a readme");
        for feature in package["features"].as_object().expect("a map").keys() {
            let is_named = feature == "default" || readme.contains(&format!("`{feature}`"));
            assert!(is_named, "{name}: README.md does not name the feature {feature}");
        }
        let listed = cargo_package(&["--list", "--package", name]);
        for file in ["LICENSE", "README.md", "Cargo.toml", "src/lib.rs"] {
            assert!(listed.lines().any(|line| line == file), "{name}: no {file} in the package:\n{listed}");
        }
        let foreign = listed.lines().find(|file| file.starts_with("bench/") || file.starts_with("target/"));
        assert_eq!(foreign, None, "{name}");
    }
}

/// Packages with the versions of the lock file, without a network and without compiling, which `make publish-check` does.
#[test]
fn all_packages_can_be_made_in_their_order() {
    let packages = published();
    let selected = packages.iter().flat_map(|package| ["--package", text(package, "name")]);
    cargo_package(&[&["--no-verify"][..], &selected.collect::<Vec<_>>()].concat());
}

fn cargo_package(arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let output = Command::new(env!("CARGO"))
        .args(["package", "--offline", "--locked", "--allow-dirty", "--target-dir"])
        .arg(folder)
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the names of files are text")
}
