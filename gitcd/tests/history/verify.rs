//! `gitcd verify` finds and names each kind of damage.

use serde_json::json;

use crate::support::build::put;
use crate::support::{DATA, Kind, Launch, METADATA, Repository};
use crate::{gitcd, gitcd_json, tree};

/// A branch with three keys in its data and one in its metadata; its server has stopped.
async fn store() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    Repository::init(&folder.path().join("repo.git"));
    let mut server = Launch::new(Kind::Gitcd).folder(folder.path()).argument("--key-prefixes=/registry").start().await;
    let client = server.client().await;
    for (key, value) in
        [("/registry/a/b", "{\"a\":1}\n"), ("/registry/a/c", "text"), ("/registry/d", "{}"), ("local", "1")]
    {
        client.put(put(key, value)).await.ok();
    }
    server.terminate().await;
    let repository = server.repository();
    (folder, repository)
}

/// Replaces the metadata commit by one with another tree: one entry changed, or removed if `None`.
fn with_entry(repository: &Repository, name: &str, entry: Option<&str>) {
    let listing = repository.git(&["ls-tree", METADATA]);
    let others = listing.lines().filter(|line| !line.ends_with(&format!("\t{name}")));
    let lines: Vec<String> =
        others.map(ToOwned::to_owned).chain(entry.map(|entry| format!("{entry}\t{name}"))).collect();
    let top = tree(repository, &(lines.join("\n") + "\n"));
    let data = repository.reference(DATA);
    let commit = repository.git(&["commit-tree", "-p", &data, "-m", "metadata at revision 5", &top]);
    repository.git(&["update-ref", METADATA, commit.trim()]);
}

fn with_file(repository: &Repository, name: &str, content: &str) {
    let blob = repository.blob(content);
    with_entry(repository, name, Some(&format!("100644 blob {blob}")));
}

#[tokio::test]
async fn every_kind_of_damage_is_found_and_named() {
    let (_folder, repository) = store().await;
    let good = repository.reference(METADATA);
    let keys = repository.git(&["cat-file", "blob", &format!("{METADATA}:keys")]);
    let verify = || gitcd_json(repository.path(), &["verify", "--json", "--key-prefixes=/registry"]);
    let verified = verify();
    assert_eq!((&verified["findings"], &verified["keys"], &verified["local_keys"]), (&json!([]), &json!(3), &json!(1)));
    assert_eq!(verified["bytes"], json!(8 + 4 + 2 + 1), "{verified:#}");

    let line = |key: &str| keys.lines().find(|line| line.starts_with(key)).expect("each key has a record").to_owned();
    let b = line("/registry/a/b ");
    assert_eq!(b, "/registry/a/b 2 2 1 - n d");
    let instead = |of: &str, now: &str| keys.replace(&format!("{of}\n"), now);
    // Damaged key records.
    for (lines, words) in [
        (instead(&b, "/registry/a/b 3 2 1 - n d\n"), "created at 3, changed last at 2"),
        (instead(&b, "/registry/a/b 2 9 1 - n d\n"), "changed last at 9, and the store is at 5"),
        (instead(&b, "/registry/a/b 2 2 1 77 n d\n"), "/registry/a/b: its lease 77 is not among the leases"),
        (instead(&b, ""), "the metadata has no key for the file \"a/b\""),
        (instead(&b, &format!("{b}\n/registry/a/bb 2 2 1 - n d\n")), "the metadata has the key \"/registry/a/bb\""),
        (instead(&line("/registry/a/c "), "/registry/a/c 3 3 1 - n d\n"), "recorded in form 'n', but at byte 0"),
        (instead(&line("local "), ""), "the metadata has no key for the file \"local\""),
        (instead(&line("local "), "/registry/local 5 5 1 - r l\n"), "use the prefix with which the branch was created"),
    ] {
        repository.git(&["update-ref", METADATA, &good]);
        with_file(&repository, "keys", &lines);
        let verified = verify();
        let findings = verified["findings"].as_array().unwrap();
        assert!(findings.iter().any(|one| one.as_str().unwrap().contains(words)), "{words}: {verified:#}");
        assert_eq!(gitcd(repository.path(), &["verify", "--key-prefixes=/registry"]).status.code(), Some(1));
    }
    // Damage that makes the metadata unreadable.
    for (name, content, words) in [
        ("format", "gitcd metadata 99\n", "\"gitcd metadata 99\""),
        ("state", "revision x\n", "state"),
        ("leases", "1 60\n", "leases"),
        ("keys", "no line at all\n", "line 1"),
        ("keys", &(b.clone() + "\n").repeat(2), "keys"),
    ] {
        repository.git(&["update-ref", METADATA, &good]);
        with_file(&repository, name, content);
        let output = gitcd(repository.path(), &["verify", "--key-prefixes=/registry"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{name}: {output:?}");
    }
    for name in ["format", "state", "leases", "keys"] {
        repository.git(&["update-ref", METADATA, &good]);
        with_entry(&repository, name, None);
        let output = gitcd(repository.path(), &["verify", "--key-prefixes=/registry"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(&format!("\"{name}\": the file is missing")),
            "{output:?}"
        );
    }
    // A missing blob.
    repository.git(&["update-ref", METADATA, &good]);
    repository.git(&["repack", "-adfq"]);
    let blob = repository.git(&["rev-parse", "main:a/b"]).trim().to_owned();
    let packs: Vec<_> =
        std::fs::read_dir(repository.path().join("objects/pack")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let aside = repository.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    for pack in packs {
        std::fs::rename(&pack, aside.join(pack.file_name().unwrap())).unwrap();
    }
    for pack in std::fs::read_dir(&aside).unwrap().map(|entry| entry.unwrap().path()) {
        if pack.extension().is_some_and(|extension| extension == "pack") {
            let mut git = std::process::Command::new("git");
            git.arg("-C").arg(repository.path()).args(["unpack-objects", "-q"]);
            let unpacked = git.stdin(std::fs::File::open(pack).unwrap()).status();
            assert!(unpacked.expect("git is installed").success());
        }
    }
    std::fs::remove_file(repository.path().join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let verified = verify();
    let finding = verified["findings"][0].as_str().unwrap_or_default();
    assert!(finding.contains("a/b") && finding.contains(&blob), "{verified:#}");
    assert_eq!(verified["findings"].as_array().unwrap().len(), 1, "{verified:#}");
}
