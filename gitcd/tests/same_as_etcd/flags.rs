//! Every flag of etcd is accepted, or refused with a hint.

use std::process::Command;

use crate::support::assets;

fn said(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn flags(help: &str) -> Vec<String> {
    let lines = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    lines.filter_map(|line| line.split([' ', '=', '[']).next().map(ToOwned::to_owned)).collect()
}

#[test]
fn every_flag_of_etcd_is_taken_or_refused_with_a_remedy() {
    let etcd = flags(&said(&assets::program("etcd").display().to_string(), &["--help"]).1);
    assert!(etcd.len() > 100, "{etcd:?}");
    let gitcd = env!("CARGO_BIN_EXE_gitcd");
    let taken = flags(&said(gitcd, &["serve", "--help"]).1);
    let page = include_str!("../../../docs/etcd.md");
    let (listed, _) = page.split_once("All others are refused").expect("the page has this sentence");
    for flag in &etcd {
        let is_listed = listed.contains(&format!("`--{flag}`"));
        if taken.contains(flag) {
            assert!(is_listed, "--{flag} is accepted, but not listed in docs/etcd.md");
            continue;
        }
        assert!(!is_listed, "--{flag} is listed in docs/etcd.md, but not accepted");
        let (succeeded, text) = said(gitcd, &["serve", &format!("--{flag}=1"), "--repo=/dev/null"]);
        // The flag's name before etcd 3.6.
        if flag.strip_prefix("experimental-").is_some_and(|stable| taken.iter().any(|taken| taken == stable)) {
            assert!(!text.contains("unexpected argument"), "--{flag}: {text}");
            continue;
        }
        assert!(!succeeded && text.contains(&format!("tip: --{flag} is a flag of etcd: ")), "--{flag}: {text}");
    }
}
