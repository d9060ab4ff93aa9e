//! The page about the ports, and the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::CustomResourceExt;
use trishanku_framework::crd::Definitions;

/// Each port: its folder, its program, and the lines and characters of its original.
const PORTS: [(&str, &str, [usize; 2]); 3] = [
    ("cron_job", "cron-job", [723, 22_717]),
    ("configmap_generator", "configmap-generator", [107, 2_880]),
    ("hello_world", "hello-world", [1493, 38_695]),
];

/// The parts of the cron job: the row of the page, the files, and the lines of the original.
const PARTS: [(&str, &[&str], usize); 4] = [
    ("the kind", &["kind"], 59),
    ("the controller", &["plan", "schedule", "reconcile", "mod"], 430),
    ("the webhooks", &["admission"], 99),
    ("the program", &["../bin/cron-job"], 135),
];

/// Returns the lines of code of a file, and their characters.
fn code(path: &Path) -> [usize; 2] {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines: Vec<&str> = text.lines().filter(is_code).collect();
    [lines.len(), lines.iter().flat_map(|line| line.chars()).filter(|character| !character.is_whitespace()).count()]
}

fn sum(files: impl IntoIterator<Item = PathBuf>) -> [usize; 2] {
    files.into_iter().map(|path| code(&path)).fold([0, 0], |[lines, chars], [more, of]| [lines + more, chars + of])
}

/// Formats a number as the page does.
fn grouped(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[test]
fn the_page_has_the_numbers_of_lines_and_characters() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/ported-controllers.md")).unwrap();
    let mut expected = Vec::new();
    for (folder, program, [lines, characters]) in PORTS {
        let files = std::fs::read_dir(root.join("src").join(folder)).unwrap().map(|file| file.unwrap().path());
        let [ported, of_port] = sum(files.chain([root.join(format!("src/bin/{program}.rs"))]));
        let characters = format!("{} | {} |", grouped(characters), grouped(of_port));
        expected.push((format!("| `{program}` |"), format!("| {lines} | {ported} | {characters}")));
    }
    for (row, files, lines) in PARTS {
        let [ported, _] = sum(files.iter().map(|file| root.join(format!("src/cron_job/{file}.rs"))));
        expected.push((format!("| {row} |"), format!("| {lines} | {ported} |")));
    }
    for (start, end) in expected {
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        assert!(row.ends_with(&end), "{row:?} has to end in {end}");
    }
}

fn printed(program: &str) -> String {
    let output = Command::new(program).arg("crd").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn definition<K: CustomResourceExt>() -> String {
    Definitions::of::<K>().to_string()
}

#[test]
fn the_programs_print_their_definitions() {
    assert_eq!(printed(env!("CARGO_BIN_EXE_cron-job")), definition::<ports::cron_job::CronJob>());
    let generator = printed(env!("CARGO_BIN_EXE_configmap-generator"));
    assert_eq!(generator, definition::<ports::configmap_generator::ConfigMapGenerator>());
    assert_eq!(printed(env!("CARGO_BIN_EXE_hello-world")), definition::<ports::hello_world::HelloCluster>());
}
