//! Keys to paths and back (`gitcd::git::path`).

use gitcd::git::path::{MAX_DEPTH, VALUE, decode, encode, fits};

/// Takes `data` as a key, as two keys, and as a path.
pub fn run(data: &[u8]) {
    let names = names_of(data);
    key(data, &names);
    if let Some(middle) = data.iter().position(|byte| *byte == b'\n') {
        let (one, other) = (&data[..middle], &data[middle + 1..]);
        assert_eq!(one == other, names_of(one) == names_of(other), "one path for two keys");
    }
    path(&data.split(|byte| *byte == b'/').collect::<Vec<_>>());
    // Names that Git would not create, with slashes and NULs.
    path(&data.split(|byte| *byte == b'\n').collect::<Vec<_>>());
    path(&names.iter().map(|name| &name[..name.len().min(3)]).collect::<Vec<_>>());
}

fn names_of(key: &[u8]) -> Vec<Vec<u8>> {
    encode(key).map(std::borrow::Cow::into_owned).collect()
}

fn key(key: &[u8], names: &[Vec<u8>]) {
    assert!(!names.is_empty());
    assert_eq!(fits(key), names.len() <= MAX_DEPTH);
    for name in names {
        // Names that Git or file systems refuse, or that could be confused with the value of the parent key.
        assert!((1..=255).contains(&name.len()));
        assert!(name.iter().all(|byte| matches!(byte, b' '..=b'}') && !b"/\\\"<>|?*".contains(byte)));
        assert!(!matches!(name.last(), Some(b'.' | b' ')));
        assert!(!name.to_ascii_lowercase().starts_with(b".git"));
        assert_ne!(name, VALUE);
    }
    let plain = names.iter().map(Vec::as_slice);
    assert_eq!(decode(plain.clone()).as_deref(), Ok(key));
    assert_eq!(decode(plain.chain([VALUE]).collect::<Vec<_>>()).as_deref(), Ok(key));
}

/// A path that decodes is the path of the resulting key only.
fn path(names: &[&[u8]]) {
    match decode(names.iter().copied()) {
        Ok(key) => {
            let own = names_of(&key);
            let rest = names.strip_prefix(&own.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]);
            assert!(matches!(rest, Some([] | [VALUE])), "{names:?} gave {key:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
