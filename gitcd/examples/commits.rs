//! Measures how fast revisions are committed to Git, and how fast a branch is loaded.
//!
//! ```text
//! cargo run --release -p gitcd --example commits [-- revisions [part of a shape's name]]
//! ```

mod branch;

use std::time::{Duration, Instant};

use gitcd::git::branch::{Action, Branch, Change, Record, State};

use crate::branch::{config, one};

/// A distribution of a store's keys.
struct Shape {
    name: &'static str,
    directories: usize,
    keys: usize,
    revisions_per_flush: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let revisions = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 20_000,
    };
    let shapes = [
        Shape { name: "5,000 keys in 50 directories", directories: 50, keys: 5_000, revisions_per_flush: 10_000 },
        Shape { name: "5,000 keys, a flush every 100", directories: 50, keys: 5_000, revisions_per_flush: 100 },
        Shape { name: "20,000 keys in one directory", directories: 1, keys: 20_000, revisions_per_flush: 1_000 },
        Shape { name: "100,000 keys in 100 directories", directories: 100, keys: 100_000, revisions_per_flush: 10_000 },
    ];
    let wanted = std::env::args().nth(2).unwrap_or_default();
    for shape in shapes.into_iter().filter(|shape| shape.name.contains(&wanted)) {
        let revisions = if shape.revisions_per_flush < 10_000 { revisions / 10 } else { revisions };
        measure(&shape, revisions)?;
    }
    Ok(())
}

fn measure(shape: &Shape, revisions: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut state = State { revision: 1, incarnation: "bench".into(), ..State::default() };
    let mut branch = Branch::create(config(folder.path()), &state)?;
    println!("{}:", shape.name);

    state.revision += 1;
    let changes = (0..shape.keys).map(|key| change(shape, key, state.revision)).collect();
    let started = Instant::now();
    branch.commit(&one(state.revision, changes))?;
    branch.flush(&state)?;
    println!("  all keys in one commit: {:.2?}", started.elapsed());

    let (mut committing, mut flushing) = (Duration::ZERO, Duration::ZERO);
    let (mut pack_bytes, mut index_bytes, mut flushes) = (0, 0, 0u32);
    for round in 0..revisions {
        state.revision += 1;
        let made = one(state.revision, vec![change(shape, round * 7919 % shape.keys, state.revision)]);
        let started = Instant::now();
        branch.commit(&made)?;
        committing += started.elapsed();
        if (round + 1) % shape.revisions_per_flush == 0 || round + 1 == revisions {
            let started = Instant::now();
            let written = branch.flush(&state)?;
            flushing += started.elapsed();
            (pack_bytes, index_bytes, flushes) =
                (pack_bytes + written.pack_bytes, index_bytes + written.index_bytes, flushes + 1);
        }
    }
    let rate = |time: Duration| revisions as f64 / time.as_secs_f64();
    println!(
        "  {revisions} revisions, a commit each: {:.0}/s ({:.0}/s without the {flushes} flushes of {:.1?} each)",
        rate(committing + flushing),
        rate(committing),
        flushing / flushes,
    );
    println!("  bytes a revision: {} pack + {} index", pack_bytes / revisions as u64, index_bytes / revisions as u64);

    let started = Instant::now();
    let branch = Branch::open(config(folder.path()))?.ok_or("the branch has just been written")?;
    let opened = started.elapsed();
    let started = Instant::now();
    let loaded = branch.load(branch.head().metadata)?;
    println!("  opened in {opened:.2?}, {} keys loaded in {:.2?}", loaded.keys.len(), started.elapsed());
    Ok(())
}

/// A value of about 700 bytes with one field that changes with the revision.
fn change(shape: &Shape, key: usize, revision: i64) -> Change {
    let namespace = key % shape.directories;
    let name = format!("name-of-an-object-{key:06}");
    let filler = "a value that takes room; ".repeat(16);
    let value = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"namespace-{namespace}\",\
         \"uid\":\"{key:08x}-1111-2222-3333-444455556666\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"labels\":{{\"app\":\"{name}\"}}}},\
         \"data\":{{\"counter\":\"{revision}\",\"filler\":\"{filler}\"}}}}\n"
    );
    let record = Record { create_revision: 2, mod_revision: revision, version: revision, lease: 0 };
    Change {
        key: format!("/registry/configmaps/namespace-{namespace}/{name}").into(),
        action: Action::Put { value: value.into(), record },
    }
}
