//! Faults of disks and files, and operators' mistakes, end in a clear refusal or a clean recovery, never in silent loss.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

mod descriptors;
mod disk;
mod flags;
mod frames;
mod fsync;
mod journal;
mod permissions;
mod prefixes;
mod references;
mod small_disk;
mod start;
mod stop;
mod tasks;
mod tls;

use support::build::{get, put};
use support::{Client, Exit, Server};

/// The key of the `number`th write.
fn key(number: usize) -> String {
    format!("/registry/tests/default/t{number:04}")
}

fn value(number: usize) -> String {
    format!("{{\"kind\":\"Test\",\"number\":{number}}}\n")
}

/// Writes the keys with these numbers, one revision each.
async fn write(client: &Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        client.put(put(&key(number), &value(number))).await.ok();
    }
}

/// Asserts that all keys with these numbers exist, at the revisions that a fresh store gave them.
async fn holds(client: &Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let answer = client.range(get(&key(number))).await.ok();
        let pair = answer.kvs.first().unwrap_or_else(|| panic!("{} is lost", key(number)));
        assert_eq!(pair.value, value(number), "{}", key(number));
        assert_eq!(pair.mod_revision, number as i64 + 2, "{}", key(number));
    }
}

/// Asserts that the server refused to start with a useful error: a nonzero exit code, these words, no repetition, no panic.
fn explains(exit: &Exit, words: &[&str]) {
    let code = exit.status.code();
    assert!(code.is_some_and(|code| code != 0), "exited with {}:\n{}", exit.status, exit.output);
    for word in words {
        assert!(exit.output.contains(word), "the output lacks {word:?}:\n{}", exit.output);
    }
    let message = exit.output.lines().rev().find(|line| line.starts_with("gitcd: ")).unwrap_or_default();
    let parts: Vec<_> = message.split(": ").collect();
    let twice = parts.iter().enumerate().find(|(at, part)| parts[at + 1..].contains(part));
    assert!(twice.is_none(), "the error repeats {twice:?}:\n{message}");
    assert!(!exit.output.contains("panicked"), "gitcd panicked instead of reporting an error:\n{}", exit.output);
}

/// Asserts that the server starts again, has the writes with these numbers, and accepts more.
async fn recovers(server: &mut Server, numbers: std::ops::Range<usize>) {
    server.restart().await;
    let client = server.client().await;
    holds(&client, numbers.clone()).await;
    write(&client, numbers.end..numbers.end + 1).await;
    holds(&client, numbers.start..numbers.end + 1).await;
    server.repository().fsck();
}
