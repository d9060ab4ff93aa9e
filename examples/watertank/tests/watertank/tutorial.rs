//! The tutorial contains the example, unchanged.

use std::path::Path;

use trishanku_framework::crd::Definitions;

use crate::tank::Tank;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Files that the tutorial contains completely.
const SOURCES: [&str; 4] = ["src/control.rs", "src/main.rs", "src/plan.rs", "src/tank.rs"];
/// Files of which it contains parts.
const OTHERS: [&str; 2] = ["tank.yaml", "tests/watertank/levels.rs"];
/// Stands for lines that the tutorial leaves out.
const LEFT_OUT: &str = "…";

fn read(path: &str) -> String {
    let path = Path::new(ROOT).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Returns the blocks of code, with their languages.
fn blocks(tutorial: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for (index, part) in tutorial.split("```").enumerate() {
        if index % 2 == 1 {
            let (language, code) = part.split_once('\n').unwrap();
            blocks.push((language.to_owned(), code.to_owned()));
        }
    }
    blocks
}

#[test]
fn every_block_is_in_the_example_or_is_a_command_and_no_line_of_the_example_is_left_out() {
    let blocks = blocks(&read("../../docs/write-a-controller.md"));
    let (sources, others) = (SOURCES.map(read), OTHERS.map(read));
    let mut shown = String::new();
    for (language, code) in &blocks {
        match language.as_str() {
            "rust" | "yaml" => {
                let is_there = |file: &String| format!("\n{file}").contains(&format!("\n{code}"));
                assert!(sources.iter().chain(&others).any(is_there), "not in the example:\n{code}");
                shown.push_str(code);
            }
            "console" => assert!(code.starts_with("$ "), "not a command:\n{code}"),
            other => panic!("a block of {other:?}:\n{code}"),
        }
    }
    for (path, source) in SOURCES.iter().zip(&sources) {
        for line in source.lines().filter(|line| !line.is_empty()) {
            assert!(shown.lines().any(|shown| shown == line), "the tutorial lacks this line of {path}: {line}");
        }
    }
}

#[test]
fn the_definition_in_the_tutorial_is_the_printed_one() {
    let printed = Definitions::of::<Tank>().to_string();
    let mut lines = printed.lines();
    let blocks = blocks(&read("../../docs/write-a-controller.md"));
    let (_, shown) = blocks.iter().find(|(_, code)| code.contains("watertank crd\n")).expect("the block exists");
    for line in shown.lines().skip(1).filter(|line| line.trim() != LEFT_OUT) {
        assert!(lines.any(|printed| printed == line), "not printed, or not in this order: {line}");
    }
}

#[test]
fn the_program_is_as_short_as_it_is_said_to_be() {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines: usize = SOURCES.map(|path| read(path).lines().filter(is_code).count()).iter().sum();
    assert!(lines <= 110, "{lines} lines");
}
