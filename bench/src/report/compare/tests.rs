//! The rows of each client and server.

use std::path::Path;

use super::*;

fn side(rate: f64) -> Side {
    Side {
        rate,
        turns: vec![rate * 0.9, rate * 1.1],
        operations: 1_000,
        conflicts: 0,
        p50_ms: 1.0,
        p99_ms: 2.0,
        max_ms: 3.0,
        load_seconds: 1.0,
        settle_seconds: 0.5,
        settled: true,
        cpu_seconds: 0.1,
        client_cpu_seconds: 0.1,
        other_cpu_seconds: 0.0,
        written_bytes: 1,
        peak_memory: 1 << 20,
        revisions: 1_000,
        commits: None,
        lag: Vec::new(),
    }
}

fn comparison(client: Language, rates: [f64; 3]) -> Comparison {
    let sides = rates.map(|rate| if rate > 0.0 { Ok(side(rate)) } else { Err("no answer".to_owned()) });
    let (name, what, unit) = ("put-1", "a put", "puts");
    Comparison { name, what, unit, clients: 1, goal: Some(1.1), client, sides: sides.into() }
}

fn end(label: &str) -> End {
    End {
        label: label.into(),
        version: "1".into(),
        peak_memory: 1,
        cpu_seconds: 1.0,
        written_bytes: 1,
        revisions: 1,
        compactions: 0,
        commits: None,
        disk: Vec::new(),
    }
}

fn report(go: [f64; 3]) -> Report {
    Report {
        command: "gitcd-bench".into(),
        date: "today".into(),
        machine: Machine::look(Path::new(".")),
        connections: 8,
        client_threads: 2,
        languages: &[Language::Go, Language::Rust],
        compact_every: 50_000,
        quiet_seconds: 10.0,
        measured: Measured {
            workloads: vec![comparison(Language::Go, go), comparison(Language::Rust, [400.0, 200.0, 500.0])],
            servers: ["gitcd", "etcd", "bare-wire"].map(end).into(),
        },
    }
}

fn cells(section: &str, start: &str) -> Vec<Vec<String>> {
    let rows = section.lines().filter(|line| line.starts_with(start));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn each_client_has_a_row_with_its_ratio_and_the_part_of_the_limit() {
    let report = report([300.0, 200.0, 600.0]);
    let throughput = cells(&report.throughput().render(), "| put-1 ");
    assert_eq!(
        throughput,
        [
            ["put-1", "Go", "puts", "1", "300", "200", "1.50", "(1.50–1.50)", "–", "600", "50 %"],
            ["put-1", "Rust", "puts", "1", "400", "200", "2.00", "(2.00–2.00)", "≥ 1.10", "500", "80 %"],
        ]
    );
    let times = cells(&report.times().render(), "| put-1 ");
    assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [15, 15]);
    let section = report.section();
    assert_eq!(section.matches("- `put-1` (clients: 1): a put").count(), 1, "{section}");
    assert!(!report.failed());
}

#[test]
fn a_failure_names_its_client_and_leaves_the_ratio_out() {
    let report = report([300.0, 0.0, 600.0]);
    assert!(report.failed());
    let rows = cells(&report.throughput().render(), "| put-1 ");
    assert_eq!(rows[0][4..8], ["300", "failed", "–", "–"]);
    assert_eq!(report.failures(), "- `put-1` with the Go client on etcd: no answer\n");
}
