//! The page contains the examples, unchanged.

use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SOURCES: [&str; 2] = ["src/stateful_set.rs", "src/main.rs"];

fn read(path: &str) -> String {
    let path = Path::new(ROOT).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

#[test]
fn the_tutorial_shows_every_line_of_the_example_and_nothing_else() {
    let page = read("../../docs/write-a-heaven.md");
    let shown: String = page.split("```rust\n").skip(1).map(|part| part.split("```").next().unwrap()).collect();
    let sources = SOURCES.map(read);
    for line in shown.lines() {
        assert!(sources.iter().any(|source| source.lines().any(|there| there == line)), "not in the example: {line}");
    }
    for (path, source) in SOURCES.iter().zip(&sources) {
        assert!(shown.contains(source.as_str()), "the page differs from {path}");
    }
}

#[test]
fn each_kind_is_as_short_as_it_is_said_to_be() {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    for path in ["src/stateful_set.rs", "src/daemon_set.rs", "src/job.rs"] {
        let lines = read(path).lines().filter(is_code).count();
        assert!(lines < 60, "{path}: {lines} lines");
    }
}
