//! The default listen address.

use std::path::PathBuf;
use std::process::Command;

use super::support::{Kind, Launch, eventually};

/// The default of a single branch.
const ADDRESS: &str = "127.0.0.1:2479";

/// The addresses and ports that listen in a process's network namespace, as the kernel prints them.
fn listening(process: u32) -> Vec<String> {
    let lines = |file: &str| {
        let path: PathBuf = ["/proc", &process.to_string(), "net", file].iter().collect();
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let sockets = lines("tcp") + &lines("tcp6");
    let sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets.filter(|fields| fields.get(3) == Some(&"0A")).map(|fields| fields[1].to_owned()).collect()
}

#[test]
fn the_help_names_a_default_that_only_this_machine_reaches() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_gitcd")).args(["serve", "--help"]).output().expect("gitcd can be started");
    let help = String::from_utf8_lossy(&output.stdout);
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("[default: http://{ADDRESS} for a single branch]")), "{help}");
}

#[tokio::test]
async fn without_a_flag_only_this_machine_is_listened_to() {
    // In a network namespace of its own the port is free.
    let wrapper = ["unshare", "--net", "--map-root-user"];
    let can = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: cannot create a network namespace");
        return;
    }
    let up = ["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""];
    let server = Launch::new(Kind::Gitcd).wrapper(&[&wrapper[..], &up].concat()).without("--listen-urls").spawn();
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).expect("the process exists");
    let sockets = eventually("a listening socket", async || {
        let is_apart = network(&server.id().to_string()) != network("self");
        Some(listening(server.id())).filter(|sockets| is_apart && !sockets.is_empty())
    })
    .await;
    // The kernel prints the address as a number in native byte order.
    let loopback = format!("{:08X}:{:04X}", u32::from_ne_bytes([127, 0, 0, 1]), 2479);
    assert_eq!(sockets, [loopback], "{}", server.output());
}
