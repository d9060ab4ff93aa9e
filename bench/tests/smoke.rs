//! A comparison of the server that shows the limit with itself, by the program as users run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gitcd-bench");

/// Builds the Go client; `None` without Go.
fn go_client() -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok()?;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gitcd-bench-go");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&path).arg(".");
    build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"));
    build.envs([("GOFLAGS", "-mod=readonly"), ("GOWORK", "off"), ("CGO_ENABLED", "0")]);
    assert!(build.status().expect("go starts").success(), "bench/go does not build");
    Some(path)
}

#[test]
fn all_clients_are_measured_and_every_row_is_in_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, page) = (folder.path().join("report.json"), folder.path().join("benchmarks.md"));
    let mut bench = Command::new(PROGRAM);
    bench.args(["--compare=bare-wire,bare-wire", "--only=watch-100-no-prev-kv", "--quick", "--seconds=2"]);
    bench.arg("--dir").arg(folder.path()).arg("--json").arg(&json).arg("--write").arg(&page);
    let clients: &[&str] = if let Some(client) = go_client() {
        bench.arg("--client=both").arg("--go-client").arg(client);
        &["go", "rust"]
    } else {
        eprintln!("the Go client is skipped: Go is not installed, so it cannot be built");
        bench.arg("--client=rust");
        &["rust"]
    };
    let output = bench.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let report: Value = serde_json::from_slice(&std::fs::read(json).expect("the report")).expect("JSON");
    let workloads = report["workloads"].as_array().expect("workloads");
    assert_eq!(workloads.iter().map(|one| one["client"].as_str().expect("a client")).collect::<Vec<_>>(), clients);
    for workload in workloads {
        let sides = workload["sides"].as_array().expect("sides");
        assert_eq!(sides.len(), 2);
        for side in sides {
            let measured = &side["Ok"];
            let count = |name: &str| measured[name].as_u64().unwrap_or_else(|| panic!("{name}: {side}"));
            assert!(count("operations") > 0);
            // Every watcher has received every write.
            assert_eq!(count("operations"), 100 * count("revisions"), "{side}");
            assert!(measured["client_cpu_seconds"].as_f64().expect("a time") > 0.0, "{side}");
            assert_eq!(measured["turns"].as_array().expect("turns").len(), 2, "{side}");
        }
    }
    let page = std::fs::read_to_string(page).expect("the page");
    let rows = |client: &str| {
        let cells = page.lines().filter_map(|line| line.strip_prefix("| watch-100-no-prev-kv | ")?.split('|').next());
        cells.filter(|cell| cell.trim() == client).count()
    };
    // Throughput and times.
    assert_eq!((rows("Rust"), rows("Go")), (2, 2 * (clients.len() - 1)), "{page}");
    assert!(page.contains("## bare-wire-1 and bare-wire-2 side by side"), "{page}");
}

#[test]
fn the_curve_of_branches_is_measured_and_drawn() {
    let gitcd = Path::new(PROGRAM).with_file_name("gitcd");
    if !gitcd.exists() {
        eprintln!("SKIPPED: {} is not built; run the tests of the workspace", gitcd.display());
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("benchmarks.md");
    let mut bench = Command::new(PROGRAM);
    bench.args(["growth", "--only=branches", "--branches=2,3", "--branch-rate=5", "--seconds=4", "--gitcd"]).arg(gitcd);
    bench.arg("--dir").arg(folder.path()).arg("--write").arg(&page);
    let output = bench.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(page).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| 2  ") || line.starts_with("| 3  ")).count();
    assert_eq!(rows, 2, "{page}");
    let picture = std::fs::read_to_string(folder.path().join("images/growth-branches.svg")).expect("the picture");
    assert_eq!(picture.matches("<circle").count(), 4, "{picture}");
}
