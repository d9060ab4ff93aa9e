//! Limits on what clients can use up.

use std::io::{Read, Write};

use super::eventually;
use super::http::{self, ZERO};
use super::process::Host;

#[test]
fn who_sends_nothing_any_more_is_given_up_and_makes_room_for_others() {
    let host = Host::start(&["--max-requests=1", "--idle-timeout=1s"]);
    let work = host.work("work");
    let kind = "Content-Type: application/x-git-receive-pack-request";
    let mut stream = http::begin(host.address(), "POST", "/a/git-receive-pack", &[kind], 1 << 20);
    let id = "1111111111111111111111111111111111111111";
    let body = http::push(&[(ZERO, id, "refs/heads/new")], "report-status", b"PACK\0\0\0\x02\0\0\0\x09");
    stream.write_all(&body).unwrap();
    eventually("a quarantine", || (!host.leftovers().is_empty()).then_some(()));
    // Has to wait until the host drops the first push.
    work.commit("second");
    work.git(&["push", "--quiet", "origin", "main"]);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 408"), "{answer}");
    assert!(host.leftovers().is_empty());
}

/// The number of `git upload-pack` processes of this host.
fn programs(host: &Host) -> usize {
    let root = host.root().display().to_string();
    let is_one = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("upload-pack") && line.contains(&root)
        })
    };
    std::fs::read_dir("/proc").expect("this is Linux").flatten().filter(is_one).count()
}

#[test]
fn who_does_not_take_an_answer_or_goes_in_its_middle_ends_its_program() {
    let mut host = Host::start(&["--idle-timeout=10m"]);
    let work = host.work("work");
    let noise = super::noise(32 << 20);
    std::fs::write(work.path().join("noise"), noise).unwrap();
    work.git(&["add", "noise"]);
    let id = work.commit("large");
    work.git(&["push", "--quiet", "origin", "main"]);
    let wish = [http::line(&format!("want {id}\n")), b"0000".to_vec(), http::line("done\n")].concat();
    let begin = |host: &Host| {
        let kind = "Content-Type: application/x-git-upload-pack-request";
        let mut stream = http::begin(host.address(), "POST", "/a.git/git-upload-pack", &[kind], wish.len());
        stream.write_all(&wish).unwrap();
        // The response has started, and is larger than all buffers on its way.
        stream.read_exact(&mut [0; 1000]).unwrap();
        assert!(programs(host) > 0);
        stream
    };
    drop(begin(&host));
    eventually("git to exit after its client", || (programs(&host) == 0).then_some(()));
    host.terminate();
    host = host.argument("--idle-timeout=1s".to_owned()).running();
    let _stream = begin(&host);
    eventually("git to be stopped by the timeout", || (programs(&host) == 0).then_some(()));
}

#[test]
fn a_client_that_goes_away_takes_its_programs_with_it() {
    let host = Host::start(&["--idle-timeout=10m"]);
    let id = host.work("work").id("HEAD");
    let kind = "Content-Type: application/x-git-upload-pack-request";
    // A small request is read before git is started, and git exits at the first commit that is not there.
    let mut stream = http::begin(host.address(), "POST", "/a/git-upload-pack", &[kind], 1 << 20);
    let wants = http::line(&format!("want {id}\n")).repeat((300 << 10) / 50);
    stream.write_all(&wants).unwrap();
    eventually("git to be started", || (programs(&host) > 0).then_some(()));
    drop(stream);
    eventually("git to exit", || (programs(&host) == 0).then_some(()));
}

#[test]
fn without_git_it_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .args(["host", "--listen-urls=http://127.0.0.1:0", "--root"])
        .arg(folder.path())
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("install Git"), "{words}");
}
