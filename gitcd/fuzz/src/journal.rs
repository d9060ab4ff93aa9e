//! Records, and segments after a crash (`gitcd::journal`, `docs/design/journal.md`).

use std::collections::BTreeMap;
use std::path::Path;

use gitcd::journal::Segments;
use gitcd::journal::record::Record;
use gitcd::journal::recovery::{RecoverError, recover};

use super::disk;
use super::input::Input;

const HEADER: usize = 64;
const FRAME_HEADER: usize = 12;
const FRAME_MAGIC: &[u8] = b"GFRM";
const PART_MAGIC: &[u8] = b"GFRP";
const ID: [u8; 16] = [3; 16];

/// The first byte selects whether the rest is a payload or a script that creates segments.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0, payload)) => records(payload),
        Some((_, script)) => segments(&mut Input(script)),
        None => {}
    }
}

/// Decoded records encode to the same records, and take memory in proportion to the payload.
pub(super) fn records(payload: &[u8]) {
    let Ok(decoded) = Record::decode_all(payload) else { return };
    let mut canonical = Vec::new();
    for record in &decoded {
        record.encode(&mut canonical);
    }
    assert!(canonical.len() <= payload.len(), "numbers have their shortest encoding");
    let mut again = Record::decode_all(&canonical).expect("encoded records decode");
    let mut repeated = Vec::new();
    for record in &again {
        record.encode(&mut repeated);
    }
    assert_eq!(repeated, canonical);
    let (mut decoded, mut held) = (decoded, 0);
    for (records, payload) in [(&mut decoded, payload), (&mut again, &canonical)] {
        held = 0;
        for record in records {
            held += forget_offsets(record, payload);
        }
    }
    assert!(held <= payload.len());
    assert_eq!(again, decoded);
}

/// Checks that values are where the record says, and sets the offsets to 0; returns the bytes of keys and values.
pub(super) fn forget_offsets(record: &mut Record, payload: &[u8]) -> usize {
    let Record::Write(write) = record else { return 0 };
    let mut held = write.client.len();
    for change in &mut write.changes {
        held += change.key.len();
        if let Some(put) = &mut change.put {
            held += put.value.len();
            assert_eq!(payload[put.value_offset..][..put.value.len()], put.value);
            put.value_offset = 0;
        }
    }
    held
}

/// Creates segments of whole, torn and damaged frames and recovers them: everything acknowledged is recovered, or nothing was
/// changed.
fn segments(script: &mut Input) {
    let folder = disk::folder();
    let files = write(script, folder.path());
    let before = read(folder.path());
    assert_eq!(before, files);
    let Acknowledged { records: expected, clean, cut_off } = acknowledged(&files);
    match replay(folder.path()) {
        Ok((found, torn)) => {
            assert!(!cut_off, "a whole frame after damage was dropped");
            assert!(found == expected, "{} records instead of {}", found.len(), expected.len());
            assert!(!clean || torn == 0);
            // The torn end was removed.
            assert_eq!(replay(folder.path()).ok(), Some((found, 0)));
        }
        Err(error) => {
            assert!(!clean, "{error}");
            let mut after = read(folder.path());
            // A segment without content, even without a header, is removed in any case.
            if let Some((last, content)) = files.last_key_value()
                && !after.contains_key(last)
            {
                assert!(header(content).is_none() && content.iter().skip(HEADER).all(|byte| *byte == 0));
                after.insert(*last, content.clone());
            }
            assert!(after == before, "recovery failed and changed files: {error}");
        }
    }
}

fn replay(folder: &Path) -> Result<(Vec<Record>, u64), RecoverError> {
    let (mut records, segments) = (Vec::new(), Segments::default());
    let mut values = Vec::new();
    let recovered = recover(folder, &segments, |replayed| {
        let mut record = replayed.record.clone();
        if let Record::Write(write) = &mut record {
            for put in write.changes.iter_mut().filter_map(|change| change.put.as_mut()) {
                let offset = std::mem::take(&mut put.value_offset);
                values.push((replayed.position(offset, put.value.len()), put.value.clone()));
            }
        }
        records.push(record);
    })?;
    for (position, value) in values {
        assert_eq!(segments.read(position).expect("the segment is open"), value);
    }
    Ok((records, recovered.torn_bytes))
}

type Files = BTreeMap<u64, Vec<u8>>;

fn write(script: &mut Input, folder: &Path) -> Files {
    let mut files = Files::new();
    let mut sequence = u64::from(script.byte() % 4);
    while !script.is_empty() {
        let content = files.entry(sequence).or_insert_with(|| new_segment(sequence));
        match script.byte() % 8 {
            0 => frame(content, FRAME_MAGIC, script.piece(), 0),
            1 => frame(content, PART_MAGIC, script.piece(), 0),
            2 => {
                let magic = if script.byte().is_multiple_of(2) { FRAME_MAGIC } else { PART_MAGIC };
                frame(content, magic, script.piece(), 1 << (script.byte() % 32));
            }
            3 => content.extend_from_slice(script.piece()),
            4 => content.extend(std::iter::repeat_n(0, usize::from(script.byte()) * 4)),
            5 => content.truncate(content.len() - usize::from(script.byte()).min(content.len())),
            6 => {
                let at = usize::from(u16::from_le_bytes([script.byte(), script.byte()]));
                let length = content.len();
                if let Some(byte) = content.get_mut(at % length.max(1)) {
                    *byte ^= script.byte();
                }
            }
            _ => sequence += if script.byte() == 0xFF { 2 } else { 1 },
        }
    }
    for (sequence, content) in &files {
        std::fs::write(folder.join(format!("{sequence:016}.log")), content).expect("the disk has room");
    }
    files
}

fn read(folder: &Path) -> Files {
    let entries =
        std::fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("the entry can be read").path());
    entries
        .map(|path| {
            let sequence = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()).expect("a segment's name");
            (sequence, std::fs::read(&path).expect("the file can be read"))
        })
        .collect()
}

fn new_segment(sequence: u64) -> Vec<u8> {
    let mut header = [b"gitcdjl1", &sequence.to_le_bytes()[..], &ID, &[7; 16]].concat();
    header.resize(HEADER - 4, 0);
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    header
}

fn crc(id: &[u8], magic: &[u8], at: usize, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let length = u32::try_from(payload.len()).expect("inputs are short");
    let at = at as u64 | if magic == PART_MAGIC { 1 << 63 } else { 0 };
    for part in [id, &at.to_le_bytes(), &length.to_le_bytes(), payload] {
        hasher.update(part);
    }
    hasher.finalize()
}

fn frame(content: &mut Vec<u8>, magic: &[u8], payload: &[u8], damage: u32) {
    let crc = crc(&ID, magic, content.len(), payload) ^ damage;
    content.extend_from_slice(magic);
    content.extend_from_slice(&u32::try_from(payload.len()).expect("inputs are short").to_le_bytes());
    content.extend_from_slice(&crc.to_le_bytes());
    content.extend_from_slice(payload);
}

/// Returns the payload of the frame at `at` and whether it is a part, by the documented format.
fn frame_at<'a>(content: &'a [u8], id: &[u8], at: usize) -> Option<(&'a [u8], bool)> {
    let (magic, head) = content.get(at..at + FRAME_HEADER)?.split_at(FRAME_MAGIC.len());
    let is_part = magic == PART_MAGIC;
    if !is_part && magic != FRAME_MAGIC {
        return None;
    }
    let (length, expected) = head.split_first_chunk().expect("eight bytes are left");
    let payload = content.get(at + FRAME_HEADER..)?.get(..u32::from_le_bytes(*length) as usize)?;
    (crc(id, magic, at, payload).to_le_bytes() == expected).then_some((payload, is_part))
}

/// Returns the number and the ID in an intact header.
fn header(content: &[u8]) -> Option<(u64, &[u8])> {
    let (covered, crc) = content.get(..HEADER)?.split_at(HEADER - 4);
    let (sequence, rest) = covered.strip_prefix(b"gitcdjl1")?.split_first_chunk()?;
    (crc32fast::hash(covered).to_le_bytes() == crc).then_some((u64::from_le_bytes(*sequence), &rest[..16]))
}

/// The content of the segments, by the documented format.
struct Acknowledged {
    /// The records of all consecutive whole frames, and of the parts that they complete.
    records: Vec<Record>,
    /// Whether there are only zeros otherwise.
    clean: bool,
    /// Whether there are whole frames after something else.
    cut_off: bool,
}

fn acknowledged(files: &Files) -> Acknowledged {
    let (mut records, mut clean, mut cut_off) = (Vec::new(), true, false);
    let mut before = None;
    for (sequence, content) in files {
        clean &= before.is_none_or(|before| before + 1 == *sequence);
        before = Some(*sequence);
        let Some((_, id)) = header(content).filter(|(number, _)| number == sequence) else {
            clean = false;
            continue;
        };
        let mut at = HEADER;
        let mut parts = Vec::new();
        while let Some((payload, is_part)) = frame_at(content, id, at) {
            parts.push(payload);
            at += FRAME_HEADER + payload.len();
            if is_part {
                continue;
            }
            for payload in parts.drain(..) {
                match Record::decode_all(payload) {
                    Ok(mut decoded) => {
                        for record in &mut decoded {
                            forget_offsets(record, payload);
                        }
                        records.append(&mut decoded);
                    }
                    Err(_) => clean = false,
                }
            }
        }
        clean &= parts.is_empty() && content[at..].iter().all(|byte| *byte == 0);
        cut_off |= (at..content.len()).any(|at| frame_at(content, id, at).is_some());
    }
    Acknowledged { records, clean, cut_off }
}
