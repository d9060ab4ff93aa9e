use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::{CHUNK, DecodeError, MAX_DEPTH, VALUE, decode, encode, fits};

fn path_of(key: &[u8]) -> Vec<Vec<u8>> {
    encode(key).map(std::borrow::Cow::into_owned).collect()
}

fn joined(key: &[u8]) -> String {
    String::from_utf8(path_of(key).join(&b'/')).expect("names are ASCII")
}

#[test]
fn a_key_fits_up_to_the_bound_in_bytes() {
    let most = MAX_DEPTH * CHUNK;
    assert_eq!(most, 245_760);
    let longest = format!("{}/", "x".repeat(CHUNK));
    for (part, most) in [
        ("x", most),
        ("\0", most / 3),
        ("/", MAX_DEPTH - 1),
        ("y/", 2 * MAX_DEPTH - 1),
        (&longest, most + MAX_DEPTH - 1),
    ] {
        let key = |bytes: usize| part.repeat(bytes.div_ceil(part.len()))[..bytes].to_owned();
        assert!(fits(key(most).as_bytes()), "{most} bytes of {part:?}");
        assert!(!fits(key(most + 1).as_bytes()), "{most} bytes of {part:?} and one more");
    }
}

fn decode_str(path: &str) -> Result<Vec<u8>, DecodeError> {
    decode(path.as_bytes().split(|&byte| byte == b'/'))
}

/// Pieces with special rules; keys are concatenations of them.
const NASTY: &[&[u8]] = &[
    b"/",
    b"//",
    b".",
    b"..",
    b"...",
    b" ",
    b"%",
    b"%+",
    b"%value",
    b"%25",
    b"%2e",
    b".git",
    b".GIT",
    b".gitmodules",
    b".GitAttributes",
    b"git~1",
    b"GIT~1",
    b"gi7eba~1",
    b"gitmod~1",
    b"~1234567",
    b"gi7d29~1",
    b".mailmap",
    b"\0",
    b"\n",
    b"\x7f",
    b"\xff",
    b"\xe2\x80\x8c",
    b"\\",
    b":",
    b"\"<>|?*",
    b"a",
    b"pods",
    b"default",
    b"con",
    b"-",
    b"+",
    b"value",
    b"A",
];

fn nasty_key() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(NASTY).prop_map(<[u8]>::to_vec),
        2 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (prop::sample::select(&b"a.%/ \xff"[..]), 225..260_usize)
            .prop_map(|(byte, count)| vec![byte; count]),
    ];
    prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => nasty_key(),
        1 => prop::collection::vec(any::<u8>(), 0..600),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_key_comes_back_from_its_path(key in any_key()) {
        let path = path_of(&key);
        prop_assert_eq!(decode(path.iter().map(Vec::as_slice)), Ok(key.clone()));
        let below = path.iter().map(Vec::as_slice).chain([VALUE]).collect::<Vec<_>>();
        prop_assert_eq!(decode(below), Ok(key));
    }

    #[test]
    fn different_keys_have_different_paths(one in nasty_key(), other in nasty_key()) {
        prop_assert_eq!(one == other, path_of(&one) == path_of(&other));
    }

    #[test]
    fn every_name_is_safe_for_git_and_file_systems(key in any_key()) {
        for name in path_of(&key) {
            let lower = name.to_ascii_lowercase();
            prop_assert!(!name.is_empty() && name.len() <= 255);
            prop_assert!(!lower.starts_with(b".git"));
            prop_assert!(!matches!(name.last(), Some(b'.' | b' ')));
            prop_assert!(name.iter().all(|byte| (0x20..0x7F).contains(byte)));
            prop_assert!(!name.iter().any(|byte| b"/\\~\"<>|?*".contains(byte)));
            prop_assert!(name != VALUE);
        }
    }

    #[test]
    fn ordinary_kubernetes_keys_are_their_own_path(
        key in "([a-z0-9]([-a-z0-9.:]{0,60}[a-z0-9])?)(/[a-zA-Z0-9]([-a-z0-9.:_@ ]{0,60}[a-z0-9])?){0,4}"
    ) {
        prop_assert_eq!(joined(key.as_bytes()), key);
    }

    /// Every path that decodes is the path of the resulting key, in one of its two forms.
    #[test]
    fn paths_that_no_key_has_are_refused(
        path in prop::collection::vec(prop_oneof![
            nasty_key(),
            nasty_key().prop_map(|key| path_of(&key)[0].clone()),
            prop::sample::select(NASTY).prop_map(<[u8]>::to_vec),
        ], 0..4)
    ) {
        if let Ok(key) = decode(path.iter().map(Vec::as_slice)) {
            let plain = path_of(&key);
            let mut below = plain.clone();
            below.push(VALUE.to_vec());
            prop_assert!(path == plain || path == below);
        }
    }
}

#[test]
fn the_rules_of_the_design_hold_by_example() {
    for (key, path) in [
        ("pods/default/nginx", "pods/default/nginx"),
        ("clusterroles/system:kube-scheduler", "clusterroles/system:kube-scheduler"),
        ("", "%"),
        ("a//b/", "a/%/b/%"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..%2E"),
        (".git", "%2Egit"),
        (".GITmodules", "%2EGITmodules"),
        (".git.", "%2Egit%2E"),
        ("git~1", "git%7E1"),
        (".hidden", ".hidden"),
        ("a ", "a%20"),
        (" ", "%20"),
        ("100%", "100%25"),
        ("%value", "%25value"),
        ("ä", "%C3%A4"),
    ] {
        assert_eq!(joined(key.as_bytes()), path);
    }
}

#[test]
fn a_long_component_is_cut_between_escapes() {
    let exact = "x".repeat(CHUNK);
    assert_eq!(joined(exact.as_bytes()), exact);
    assert_eq!(joined(format!("{exact}y/z").as_bytes()), format!("{exact}%+/y/z"));
    for before in 1..=2 {
        let start = "x".repeat(CHUNK - before);
        assert_eq!(joined(format!("{start}%y").as_bytes()), format!("{start}%+/%25y"));
    }
    let start = "x".repeat(CHUNK - 3);
    assert_eq!(joined(format!("{start}%y").as_bytes()), format!("{start}%25%+/y"));
}

#[test]
fn a_later_chunk_never_begins_with_dot_git() {
    let start = "x".repeat(CHUNK);
    assert_eq!(joined(format!("{start}.git").as_bytes()), format!("{start}%+/%2Egit"));
    assert_eq!(joined(format!("{start}.").as_bytes()), format!("{start}%+/%2E"));
}

#[test]
fn decoding_names_the_path_and_the_remedy() {
    let not_canonical = |path: &str, canonical: &str| DecodeError::NotCanonical {
        path: path.to_owned(),
        canonical: canonical.to_owned(),
    };
    assert_eq!(decode_str("a/%41"), Err(not_canonical("a/%41", "a/A")));
    assert_eq!(decode_str("a/.git"), Err(not_canonical("a/.git", "a/%2Egit")));
    assert_eq!(decode_str("short%+/rest"), Err(not_canonical("short%+/rest", "shortrest")));
    assert_eq!(decode_str("a//b"), Err(not_canonical("a//b", "a/%/b")));
    for (path, name) in [("a/%zz", "%zz"), ("a/b%2", "b%2"), ("%2e", "%2e"), ("%value", "%value")] {
        let error = DecodeError::Escape { path: path.to_owned(), name: name.to_owned() };
        assert_eq!(decode_str(path), Err(error));
    }
    assert!(matches!(decode_str("a/%value/b"), Err(DecodeError::Escape { .. })));
    let cut_off = format!("{}%+", "x".repeat(CHUNK));
    assert_eq!(decode_str(&cut_off), Err(DecodeError::Incomplete { path: cut_off.clone() }));
    assert!(matches!(decode([]), Err(DecodeError::Incomplete { .. })));
    assert!(decode([&b"a/b"[..]]).is_err(), "a name with a slash");
}

#[test]
fn only_keys_that_git_can_walk_fit() {
    assert!(fits(b"pods/default/nginx"));
    assert!(fits(&vec![b'a'; 100_000]));
    assert!(fits("a/".repeat(MAX_DEPTH - 1).as_bytes()));
    assert!(!fits("a/".repeat(MAX_DEPTH).as_bytes()));
    assert!(!fits(&vec![b'a'; CHUNK * MAX_DEPTH + 1]));
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("git")
        .args(["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input).expect("git reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("git exits");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("git prints text");
    text.trim_end_matches('\n').to_owned()
}

/// Returns every pair of nasty pieces as a key, including values beside directories.
fn nasty_tree() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    for first in NASTY {
        for second in NASTY {
            keys.insert([*first, second].concat());
            keys.insert([*first, b"/", second].concat());
        }
        keys.insert([&[b'x'; CHUNK], *first].concat());
        keys.insert([&[b'x'; CHUNK], *first, b"/y"].concat());
    }
    let mut folders: BTreeSet<Vec<Vec<u8>>> = BTreeSet::new();
    for key in &keys {
        let path = path_of(key);
        folders.extend((1..path.len()).map(|depth| path[..depth].to_vec()));
    }
    let files = keys.into_iter().map(|key| {
        let mut path = path_of(&key);
        if folders.contains(&path) {
            path.push(VALUE.to_vec());
        }
        (path.join(&b'/'), key)
    });
    files.collect()
}

#[test]
fn stock_git_accepts_and_checks_out_trees_of_nasty_keys() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    git(at, &["init", "-q"], b"");
    let blob = git(at, &["hash-object", "-w", "--stdin"], b"[submodule \"-x\"]\n\tpath = -x\n\turl = -x\n");
    let files = nasty_tree();
    let mut index = Vec::new();
    for path in files.keys() {
        index.extend_from_slice(format!("100644 {blob}\t").as_bytes());
        index.extend_from_slice(path);
        index.push(0);
    }
    git(at, &["update-index", "-z", "--index-info"], &index);
    let tree = git(at, &["write-tree"], b"");
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
    let commit = git(at, &[&identity[..], &["commit-tree", "-m", "nasty", &tree]].concat(), b"");
    git(at, &["update-ref", "HEAD", &commit], b"");

    git(at, &["fsck", "--strict", "--full"], b"");
    git(at, &["reset", "-q", "--hard"], b"");
    assert_eq!(git(at, &["status", "--porcelain"], b""), "");

    let listed = git(at, &["ls-tree", "-r", "-z", "--name-only", "HEAD"], b"");
    let mut keys = BTreeMap::new();
    for path in listed.split_terminator('\0') {
        keys.insert(path.as_bytes().to_vec(), decode_str(path).expect("our own path"));
    }
    assert!(keys == files, "the keys read back differ from those written");
}
