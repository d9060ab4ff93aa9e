//! What operators see of branches that follow one another: `/status`, `gitcd status`, `gitcd graph`, and manual merges.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "only a part of it is used")]
mod authority;
mod command;
mod driver;
mod graph;
mod merge_file;
mod page;
mod pages;
mod rejected;
mod work;

use std::process::{Command, Output};

/// Runs `gitcd ARGUMENTS` without a terminal.
fn gitcd(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(arguments).output().expect("gitcd can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
