//! The direction of dependencies: which crates of the workspace may use which others, and that modules of a crate form no cycles.
//!
//! `docs/architecture.md` has the diagram. Dependencies of tests and build scripts do not count.

mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use self::workspace::root;

/// Each crate, with the crates that it may depend on, which come before it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("trishanku-stdio", &[]),
    ("trishanku-service", &[]),
    // gitcd: storage below, network above.
    ("gitcd-core", &["trishanku-service"]),
    ("gitcd-merge", &[]),
    ("gitcd-journal", &["gitcd-core"]),
    ("gitcd-mvcc", &["gitcd-core", "gitcd-journal", "gitcd-merge"]),
    ("gitcd-repo", &["gitcd-core", "gitcd-merge"]),
    ("gitcd-engine", &["gitcd-core", "gitcd-journal", "gitcd-merge", "gitcd-mvcc", "gitcd-repo"]),
    ("gitcd-history", &["gitcd-core", "gitcd-merge", "gitcd-repo"]),
    ("gitcd-net", &["gitcd-core", "trishanku-service"]),
    ("gitcd-sync", &["gitcd-core", "gitcd-engine", "gitcd-merge", "gitcd-mvcc", "gitcd-repo", "trishanku-stdio"]),
    ("gitcd-host", &["gitcd-core", "gitcd-engine", "gitcd-net", "gitcd-repo", "gitcd-sync"]),
    (
        "gitcd-server",
        &[
            "gitcd-core",
            "gitcd-engine",
            "gitcd-history",
            "gitcd-mvcc",
            "gitcd-net",
            "gitcd-repo",
            "gitcd-sync",
            "trishanku-service",
        ],
    ),
    (
        "gitcd",
        &[
            "gitcd-core",
            "gitcd-engine",
            "gitcd-history",
            "gitcd-host",
            "gitcd-journal",
            "gitcd-merge",
            "gitcd-mvcc",
            "gitcd-net",
            "gitcd-repo",
            "gitcd-server",
            "gitcd-sync",
            "trishanku-service",
            "trishanku-stdio",
        ],
    ),
    ("gitcd-powerloss", &[]),
    ("trishanku-undo", &["gitcd-history", "gitcd-merge"]),
    // Controllers: the framework knows no kind of Trishanku and no Git; reconcilers never use each other.
    ("trishanku-framework", &["trishanku-service"]),
    ("trishanku-api", &["trishanku-framework"]),
    ("trishanku-heaven-plan", &["trishanku-api", "trishanku-framework", "trishanku-service"]),
    (
        "trishanku-branch-status",
        &["trishanku-api", "trishanku-framework", "trishanku-heaven-plan", "trishanku-service"],
    ),
    ("trishanku-lint", &["trishanku-api", "trishanku-heaven-plan"]),
    ("trishanku-heaven", &["trishanku-api", "trishanku-framework", "trishanku-branch-status", "trishanku-heaven-plan"]),
    (
        "trishanku-automerge",
        &["trishanku-api", "trishanku-framework", "trishanku-branch-status", "trishanku-heaven-plan"],
    ),
    ("trishanku-githubrepo", &["trishanku-api", "trishanku-framework", "trishanku-heaven-plan", "trishanku-service"]),
    // Programs.
    (
        "trishanku-manager",
        &[
            "trishanku-api",
            "trishanku-automerge",
            "trishanku-framework",
            "trishanku-githubrepo",
            "trishanku-heaven",
            "trishanku-heaven-plan",
            "trishanku-service",
            "trishanku-stdio",
        ],
    ),
    ("trishanku-page", &["gitcd-core", "gitcd-history", "gitcd-merge", "gitcd-repo", "trishanku-stdio"]),
    (
        "trishanku",
        &[
            "gitcd",
            "trishanku-api",
            "trishanku-heaven",
            "trishanku-heaven-plan",
            "trishanku-lint",
            "trishanku-page",
            "trishanku-service",
            "trishanku-stdio",
            "trishanku-undo",
        ],
    ),
    // Tests, benches and examples.
    ("trishanku-testkit", &["gitcd"]),
    ("trishanku-e2e", &["trishanku"]),
    ("gitcd-bench", &["gitcd", "trishanku"]),
    ("trishanku-framework-bench", &["gitcd-bench", "trishanku-framework", "trishanku-testkit"]),
    ("watertank", &["trishanku-framework"]),
    ("rain-gauge", &["trishanku-framework"]),
    ("ports", &["trishanku-framework"]),
    ("workload-heavens", &["trishanku-api", "trishanku-framework", "trishanku-heaven", "trishanku-heaven-plan"]),
];

/// Returns the packages of the workspace, from cargo.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("there are packages").clone()
}

fn name(of: &Value) -> &str {
    of["name"].as_str().expect("a package has a name")
}

#[test]
fn crates_depend_only_on_crates_below_them() {
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(name).collect();
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let Some(may_use) = allowed.get(name(package)) else {
            wrong.push(format!("{}: add what it may use to this test and docs/architecture.md", name(package)));
            continue;
        };
        let dependencies = package["dependencies"].as_array().expect("a list");
        let used: BTreeSet<&str> = dependencies.iter().filter(|found| found["kind"].is_null()).map(name).collect();
        for used in used.intersection(&names).filter(|used| !may_use.contains(used)) {
            wrong.push(format!("{} must not use {used}", name(package)));
        }
    }
    let gone = MAY_USE.iter().map(|(package, _)| *package).filter(|package| !names.contains(package));
    wrong.extend(gone.map(|package| format!("{package}: this crate does not exist; remove it from this test")));
    for (at, (package, may_use)) in MAY_USE.iter().enumerate() {
        let below: BTreeSet<&str> = MAY_USE[..at].iter().map(|(package, _)| *package).collect();
        let above = may_use.iter().filter(|used| !below.contains(*used));
        wrong.extend(above.map(|used| format!("{package} must come after {used} in this test, which it may use")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_do_not_use_each_other_in_a_circle() {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for package in packages() {
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let source = manifest.parent().expect("a manifest is in a folder").join("src");
        let shown = source.strip_prefix(root()).expect("the crate is in the workspace").display().to_string();
        found.extend(circles(&modules(&source)).into_iter().map(|circle| (shown.clone(), circle)));
    }
    let found: Vec<String> =
        found.into_iter().map(|(source, circle)| format!("{source}: {}", circle.join(", "))).collect();
    assert!(found.is_empty(), "modules use each other in a circle:\n{}", found.join("\n"));
}

/// Returns the top-level modules of a crate, each with those that it uses. Tests do not count.
fn modules(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses = BTreeMap::<String, BTreeSet<String>>::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the entry is readable").path();
            let relative = path.strip_prefix(source).expect("the path is in the source folder").with_extension("");
            let mut steps: Vec<&str> = relative.iter().map(|step| step.to_str().expect("a plain name")).collect();
            if steps.contains(&"tests") || steps == ["lib"] || steps == ["main"] {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            if steps.last() == Some(&"mod") {
                steps.pop();
            }
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            uses.entry(steps[0].to_owned()).or_default().extend(used(&text, steps.len()));
        }
    }
    let all: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|used| used != module && all.contains(used));
    }
    uses
}

/// Returns the names after `crate::`, or after as many `super::` as lead to the crate's root.
fn used(text: &str, depth: usize) -> Vec<String> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let code = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let starts = ["crate::".to_owned(), "super::".repeat(depth)];
    let mut names = Vec::new();
    for start in &starts {
        for (at, _) in code.match_indices(start.as_str()) {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
            if code[..at].ends_with(is_part) {
                continue;
            }
            let rest = &code[at + start.len()..];
            let listed = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap_or_default(),
                None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
            };
            let first = |name: &str| name.trim().split([':', ' ']).next().unwrap_or_default().to_owned();
            names.extend(listed.split(',').map(first));
        }
    }
    names
}

/// Returns the cycles: sets of modules that use each other, directly or indirectly.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&String> = uses[from].iter().collect();
        while let Some(module) = waiting.pop() {
            if reached.insert(module.clone()) {
                waiting.extend(&uses[module]);
            }
        }
        reached
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &String| {
        let circle = reach[module].iter().filter(|other| reach[other].contains(module));
        circle.cloned().collect::<Vec<_>>()
    };
    let all: BTreeSet<Vec<String>> = uses.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}

#[test]
fn a_circle_is_found_and_a_tree_is_none() {
    let graph = |edges: &[(&str, &str)]| {
        let mut uses = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in edges {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            uses.entry((*to).to_owned()).or_default();
        }
        uses
    };
    assert!(circles(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    assert_eq!(circles(&graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])), [["a", "b", "c"]]);
    assert_eq!(used("use crate::a::B;\nuse super::{b, c::D};\n// crate::x\nlet y = mycrate::z;", 1), ["a", "b", "c"]);
    assert_eq!(used("use super::super::d;\n#[cfg(test)]\nmod tests {\nuse crate::e;", 2), ["d"]);
}
