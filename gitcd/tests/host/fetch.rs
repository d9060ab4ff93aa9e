//! Clones and fetches.

use super::git::Repository;
use super::http::{self, line};
use super::process::Host;

#[test]
fn a_clone_and_a_fetch_bring_everything_in_both_protocols() {
    let host = Host::start(&[]);
    let work = host.work("work");
    for (version, folder) in [("0", "old"), ("2", "new")] {
        let protocol = format!("protocol.version={version}");
        let clone = Repository::clone(&host.url("a"), &host.folder().join(folder), &["-c", &protocol]);
        assert_eq!(clone.id("HEAD"), work.id("HEAD"));
        let id = work.commit(&format!("second for {version}"));
        work.git(&["push", "--quiet", "origin", "main", "main:refs/heads/other", "main:refs/tags/v1", "--force"]);
        clone.git(&["fetch", "--quiet", "--tags", "--force"]);
        assert_eq!((clone.id("origin/main"), clone.id("origin/other"), clone.id("v1")), (id.clone(), id.clone(), id));
        clone.fsck();
    }
    let log = host.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
}

#[test]
fn parts_of_the_history_and_of_the_content_can_be_had() {
    let host = Host::start(&[]);
    let work = host.work("work");
    work.commit("second");
    work.git(&["push", "--quiet", "origin", "main"]);
    let shallow = Repository::clone(&host.url("a"), &host.folder().join("shallow"), &["--depth=1"]);
    assert_eq!(shallow.git(&["rev-list", "--count", "HEAD"]), "1");
    shallow.commit("third");
    shallow.git(&["push", "--quiet", "origin", "main"]);
    shallow.git(&["fetch", "--quiet", "--unshallow"]);
    assert_eq!(shallow.git(&["rev-list", "--count", "HEAD"]), "3");

    let options = ["--filter=blob:none", "--no-checkout"];
    for version in ["0", "2"] {
        let folder = host.folder().join(format!("partial{version}"));
        let protocol = format!("protocol.version={version}");
        let partial = Repository::clone(&host.url("a"), &folder, &[&options[..], &["-c", &protocol]].concat());
        let missing = partial.git(&["rev-list", "--objects", "--missing=print", "HEAD"]);
        assert_eq!(missing.lines().filter(|line| line.starts_with('?')).count(), 3, "{missing}");
        // Git fetches a missing object when it needs it.
        assert_eq!(partial.git(&["cat-file", "blob", "HEAD:third"]), "third");
    }
    host.repository("a.git").fsck();
}

#[test]
fn packed_requests_are_understood() {
    let host = Host::start(&[]);
    let work = host.work("work");
    let id = work.id("HEAD");
    let plain = [line(&format!("want {id}\n")), b"0000".to_vec(), line("done\n")].concat();
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut gzip = vec![0; compressor.gzip_compress_bound(plain.len())];
    let length = compressor.gzip_compress(&plain, &mut gzip).unwrap();
    let path = "/a.git/git-upload-pack";
    let expected = http::post(host.address(), path, &[], &plain);
    let packed = http::post(host.address(), path, &["Content-Encoding: gzip"], &gzip[..length]);
    assert_eq!((expected.status, packed.status), (200, 200));
    assert!(packed.head.contains("application/x-git-upload-pack-result"), "{}", packed.head);
    assert!(packed.body.starts_with(b"0008NAK\nPACK"), "{:?}", packed.text());
    assert_eq!(packed.body, expected.body);

    // Git itself compresses long requests.
    for at in 0..60 {
        work.git(&["checkout", "--quiet", "-B", &format!("branch{at}"), "main"]);
        work.commit(&format!("file{at}"));
    }
    work.git(&["push", "--quiet", "--all", "origin"]);
    let clone = Repository::clone(&host.url("a"), &host.folder().join("clone"), &["-c", "protocol.version=0"]);
    assert_eq!(clone.git(&["branch", "--remotes", "--list", "origin/branch*"]).lines().count(), 60);
}

#[test]
fn rubbish_is_answered_as_such() {
    let host = Host::start(&[]);
    host.work("work");
    let path = "/a.git/git-upload-pack";
    for (headers, body, status) in [
        (&[][..], &b"rubbish"[..], 400),
        (&[], b"0032want nothing", 400),
        (&["Content-Encoding: gzip"], b"0000", 400),
        (&["Content-Encoding: br"], b"0000", 415),
    ] {
        assert_eq!(http::post(host.address(), path, headers, body).status, status, "{headers:?} {body:?}");
    }
    assert_eq!(http::request(host.address(), "POST", path, &["Content-Type: text/plain"], b"0000").status, 415);
    assert_eq!(http::get(host.address(), path, &[]).status, 405);
    assert_eq!(http::get(host.address(), "/a.git/info/refs", &[]).status, 400, "the dumb protocol is not supported");
    assert_eq!(http::get(host.address(), "/a.git/HEAD", &[]).status, 404);
    assert_eq!(host.leftovers(), Vec::<std::path::PathBuf>::new());
}
