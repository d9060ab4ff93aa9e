//! Memory that hostile requests use.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::eventually;
use super::git::Repository;
use super::http::{self, ZERO};
use super::process::Host;

const MIB: u64 = 1 << 20;
const FETCH: &str = "/a.git/git-upload-pack";
const PUSH: &str = "/a.git/git-receive-pack";

/// Returns a value of a process, such as `VmHWM`, in bytes; 0 if it has exited.
fn memory(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Returns the processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let all = fs::read_dir("/proc").expect("this is Linux").flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

/// Runs requests concurrently, and returns their answers with the most memory that the host and its programs had at a time.
fn at_once(host: &Host, requests: usize, request: impl Fn(usize) -> http::Answer + Sync) -> (Vec<http::Answer>, u64) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                let all = children(host.pid()).into_iter().chain([host.pid()]);
                most = most.max(all.map(|pid| memory(pid, "VmRSS")).sum());
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let request = &request;
        let running: Vec<_> = (0..requests).map(|number| scope.spawn(move || request(number))).collect();
        let answers = running.into_iter().map(|request| request.join().expect("the request is answered")).collect();
        is_over.store(true, Ordering::Relaxed);
        (answers, watcher.join().expect("the watcher only reads"))
    })
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut packed = vec![0; compressor.gzip_compress_bound(content.len())];
    let length = compressor.gzip_compress(content, &mut packed).expect("there is room");
    packed.truncate(length);
    packed
}

#[test]
fn sixty_four_bodies_that_inflate_to_gigabytes_take_little_memory() {
    let host = Host::start(&[]);
    host.work("work");
    let have = http::line(&format!("have {}\n", "1".repeat(40)));
    let head = [http::line("command=fetch"), b"0001".to_vec()].concat();
    let count = 60 * MIB as usize / have.len();
    let haves = [head, have.repeat(count)].concat();
    for (content, expected, requests) in [(vec![0; 60 * MIB as usize], 400, 64), (haves, 413, 8)] {
        let body = gzip(&content);
        assert!(body.len() < 400_000, "{}", body.len());
        let headers = ["Content-Encoding: gzip", "Git-Protocol: version=2"];
        let (answers, most) = at_once(&host, requests, |_| http::post(host.address(), FETCH, &headers, &body));
        for answer in answers {
            // Git may notice first that the request makes no sense.
            assert!([400, expected].contains(&answer.status), "{}: {}", answer.status, answer.text());
        }
        let peak = memory(host.pid(), "VmHWM");
        assert!(peak < 512 * MIB, "the host: {} MiB", peak / MIB);
        assert!(most < 2048 * MIB, "with its programs: {} MiB", most / MIB);
    }
}

/// Returns a pack with an object of zeros, and the object's id.
fn bomb(work: &Repository, kind: &str, bytes: u64) -> (String, Vec<u8>) {
    let written = work.feed(
        &["hash-object", "-t", kind, "--literally", "-w", "--stdin"],
        &"\0".repeat(usize::try_from(bytes).expect("it fits")),
    );
    let id = String::from_utf8_lossy(&written).trim().to_owned();
    let pack = work.feed(&["pack-objects", "--stdout", "-q"], &format!("{id}\n"));
    assert!(pack.len() as u64 * 500 < bytes, "{}", pack.len());
    (id, pack)
}

#[test]
fn packs_that_inflate_to_gigabytes_are_refused_or_streamed() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let push = |id: &str, pack: &[u8]| {
        let body = http::push(&[(ZERO, id, "refs/heads/new")], "report-status", pack);
        http::post(host.address(), PUSH, &[], &body)
    };
    let (id, large) = bomb(&work, "commit", 300 * MIB);
    let (answers, most) = at_once(&host, 4, |_| push(&id, &large));
    for answer in answers {
        let text = answer.text();
        assert!(text.contains("unpack the push needs more memory than this host allows for its size"), "{text}");
    }
    assert!(most < 700 * MIB, "{} MiB", most / MIB);
    // Each of these is within the limit of a push, but not all of them together.
    let (id, allowed) = bomb(&work, "commit", 200 * MIB);
    let (answers, most) = at_once(&host, 6, |_| push(&id, &allowed));
    for answer in answers {
        assert!(answer.text().contains("ng refs/heads/new "), "{}", answer.text());
    }
    assert!(most < 1200 * MIB, "{} MiB", most / MIB);
    // Blobs are streamed.
    let (id, blob) = bomb(&work, "blob", 300 * MIB);
    let (answers, most) = at_once(&host, 4, |_| push(&id, &blob));
    for answer in answers {
        assert!(answer.text().contains("ng refs/heads/new a branch must be a commit"), "{}", answer.text());
    }
    assert!(most < 700 * MIB, "{} MiB", most / MIB);
    let peak = memory(host.pid(), "VmHWM");
    assert!(peak < 512 * MIB, "the host: {} MiB", peak / MIB);
    // The number of objects alone makes Git ask for memory.
    let answer = push(&id, b"PACK\0\0\0\x02\xff\xff\xff\xff");
    assert!(answer.text().contains("more objects than this host has memory for"), "{}", answer.text());
    assert!(host.leftovers().is_empty());
    host.repository("a.git").fsck();
}

#[test]
fn programs_that_read_a_push_have_limits_of_memory_and_time() {
    limits_are(&["--idle-timeout=10m"], 256 * MIB, 30..60);
    let flags = ["--idle-timeout=10m", "--max-push-memory-bytes=67108864", "--max-push-cpu-time=2m"];
    limits_are(&flags, 64 * MIB, 120..150);
}

/// Checks the limits of memory and of processor time of `git index-pack`.
fn limits_are(flags: &[&str], memory: u64, seconds: std::ops::Range<u64>) {
    let (expected, host) = (seconds, Host::start(flags));
    host.work("work");
    let id = "1111111111111111111111111111111111111111";
    // Nine objects, the first of which is a large blob that does not end: too large to be read in the host's own process.
    let entry = [0xb0, 0x80, 0x80, 0x80, 0x10, 0x78, 0x01];
    let pack = [&b"PACK\0\0\0\x02\0\0\0\x09"[..], &entry, &stored(5 << 20)].concat();
    let body = http::push(&[(ZERO, id, "refs/heads/new")], "report-status", &pack);
    let kind = "Content-Type: application/x-git-receive-pack-request";
    let mut stream = http::begin(host.address(), "POST", PUSH, &[kind], 100 << 20);
    stream.write_all(&body).expect("the host reads");
    let limits = eventually("git index-pack", || {
        let limits =
            children(host.pid()).into_iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).ok());
        limits.into_iter().find(|limits| value(limits, "Max cpu time").is_some_and(|value| value != "unlimited"))
    });
    let seconds = value(&limits, "Max cpu time").and_then(|value| value.parse::<u64>().ok()).expect("it is a number");
    assert!(expected.contains(&seconds), "{limits}");
    assert_eq!(value(&limits, "Max data size"), Some((memory + 9 * 256).to_string()), "{limits}");
}

/// Returns random bytes as stored blocks of a deflate stream that does not end.
fn stored(length: usize) -> Vec<u8> {
    let block = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).expect("a block is short").to_le_bytes();
        [&[0][..], &length, &length.map(|byte| !byte), bytes].concat()
    };
    super::noise(length).chunks(60_000).flat_map(block).collect()
}

/// Returns the soft limit in a line of `/proc/…/limits`.
fn value(limits: &str, name: &str) -> Option<String> {
    limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()).map(ToOwned::to_owned)
}

#[test]
fn a_push_that_needs_more_than_all_pushes_may_have_is_refused() {
    let host = Host::start(&["--max-pushes-memory-bytes=100663296", "--max-push-memory-bytes=67108864"]);
    host.work("work");
    let id = "1111111111111111111111111111111111111111";
    let body = http::push(&[(ZERO, id, "refs/heads/new")], "report-status", b"PACK\0\0\0\x02\0\x10\0\0");
    let answer = http::post(host.address(), PUSH, &[], &body);
    assert!(answer.text().contains("more objects than this host has memory for"), "{}", answer.text());
}
