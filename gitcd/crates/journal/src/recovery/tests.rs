use std::sync::Arc;

use super::*;
use crate::Writer;
use crate::fault::{self, Fault};
use crate::segment::FRAME_MAGIC;
use crate::writer::AppendError;

const INCARNATION: [u8; 16] = [7; 16];

fn writer(folder: &Path, previous: u64) -> Writer {
    Writer::create(folder, INCARNATION, previous, 4096, Arc::new(Segments::default())).unwrap()
}

fn append(writer: &mut Writer, revision: i64) -> Result<(), AppendError> {
    let record = Record::Compact(Revision::new(revision));
    let frame = writer.begin();
    record.encode(frame);
    // A payload that spans several sectors.
    (0..40).for_each(|id| Record::Revoke { id }.encode(frame));
    writer.commit(Revision::new(revision)).map(|_| ())
}

fn replayed(folder: &Path) -> Result<Vec<i64>, RecoverError> {
    let mut revisions = Vec::new();
    recover(folder, &Segments::default(), |replayed| {
        if let Record::Compact(revision) = replayed.record {
            revisions.push(revision.get());
        }
    })?;
    Ok(revisions)
}

fn segment(folder: &Path, sequence: u64) -> PathBuf {
    folder.join(crate::segment::file_name(sequence))
}

#[test]
fn appended_frames_come_back_in_order_across_segments() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    (1..=200).for_each(|revision| append(&mut journal, revision).unwrap());
    assert!(list(folder.path()).unwrap().len() > 3);
    assert_eq!(replayed(folder.path()).unwrap(), (1..=200).collect::<Vec<_>>());
}

#[test]
fn torn_last_frame_is_dropped_at_every_length_and_earlier_writes_survive() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    (1..=3).for_each(|revision| append(&mut journal, revision).unwrap());
    let end = journal.value_base().1;
    drop(journal);
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    let frame = (end as usize - HEADER) / 3;
    for cut in 1..frame {
        for fill in [false, true] {
            let mut torn = whole[..end as usize - cut].to_vec();
            torn.resize(if fill { whole.len() } else { torn.len() }, 0);
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(replayed(folder.path()).unwrap(), [1, 2], "cut {cut}");
            // The torn end is gone, so the next process can append.
            assert_eq!(std::fs::metadata(&path).unwrap().len(), end - frame as u64);
        }
    }
}

#[test]
fn damage_before_the_end_names_file_and_offset_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    (1..=3).for_each(|revision| append(&mut journal, revision).unwrap());
    drop(journal);
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for offset in HEADER..HEADER + 100 {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        let error = replayed(folder.path()).unwrap_err();
        assert!(matches!(&error, RecoverError::Corrupt { path: p, offset } if *p == path && *offset < 300), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn a_missing_segment_is_an_error_and_a_half_made_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    (1..=100).for_each(|revision| append(&mut journal, revision).unwrap());
    let newest = journal.value_base().0;
    drop(journal);
    std::fs::write(segment(folder.path(), newest + 1), [0; 4096]).unwrap();
    assert_eq!(replayed(folder.path()).unwrap().len(), 100);
    std::fs::remove_file(segment(folder.path(), 2)).unwrap();
    assert!(matches!(replayed(folder.path()), Err(RecoverError::Gap { missing: 2, .. })));
}

/// Clients choose the bytes of values, and the machine may crash while writing one. To checksum the frame of each of these
/// heads would read a terabyte.
#[test]
fn a_torn_value_full_of_heads_of_frames_costs_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    append(&mut journal, 1).unwrap();
    let end = journal.value_base().1 as usize;
    drop(journal);
    let path = segment(folder.path(), 1);
    let mut content = std::fs::read(&path).unwrap();
    content.truncate(end);
    let head = [&FRAME_MAGIC[..], &(8_u32 << 20).to_le_bytes()].concat();
    content.extend(head.repeat(128 << 10));
    content.resize(16 << 20, 0);
    std::fs::write(&path, &content).unwrap();
    assert_eq!(replayed(folder.path()).unwrap(), [1]);
}

#[test]
fn a_second_life_appends_behind_the_first() {
    let folder = tempfile::tempdir().unwrap();
    append(&mut writer(folder.path(), 0), 1).unwrap();
    assert_eq!(replayed(folder.path()).unwrap(), [1]);
    append(&mut writer(folder.path(), 1), 2).unwrap();
    assert_eq!(replayed(folder.path()).unwrap(), [1, 2]);
}

fn part(writer: &mut Writer, revision: i64) -> Result<(), AppendError> {
    Record::Compact(Revision::new(revision)).encode(writer.begin());
    (0..40).for_each(|id| Record::Revoke { id }.encode(writer.frame()));
    writer.commit_part()
}

/// A journal with one write, then two parts that a third frame completes, then one more write; and where each frame ends.
fn with_parts(folder: &Path) -> Vec<usize> {
    let mut journal = writer(folder, 0);
    let mut ends = Vec::new();
    for revision in 1..=5 {
        if (2..=3).contains(&revision) {
            part(&mut journal, revision).unwrap();
        } else {
            append(&mut journal, revision).unwrap();
        }
        ends.push(journal.value_base().1 as usize);
    }
    ends
}

#[test]
fn parts_count_together_with_the_frame_that_completes_them_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let ends = with_parts(folder.path());
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for cut in ends[0]..=ends[4] {
        for fill in [false, true] {
            let mut torn = whole[..cut].to_vec();
            torn.resize(if fill { whole.len() } else { cut }, 0);
            std::fs::write(&path, &torn).unwrap();
            let expected: &[i64] = match cut {
                cut if cut < ends[3] => &[1],
                cut if cut < ends[4] => &[1, 2, 3, 4],
                _ => &[1, 2, 3, 4, 5],
            };
            assert_eq!(replayed(folder.path()).unwrap(), expected, "cut {cut}, fill {fill}");
            // What does not count is gone, so that the next process can append.
            let kept = ends.iter().rfind(|end| **end <= cut && ![ends[1], ends[2]].contains(end)).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), *kept as u64);
        }
    }
}

#[test]
fn damage_in_a_part_and_parts_before_another_segment_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let ends = with_parts(folder.path());
    let path = segment(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for offset in (ends[0]..ends[3]).step_by(3) {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        let error = replayed(folder.path()).unwrap_err();
        assert!(matches!(&error, RecoverError::Corrupt { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }
    // A part is not the frame that completes it.
    let mut damaged = whole[..ends[1]].to_vec();
    damaged[ends[0]..ends[0] + 4].copy_from_slice(&FRAME_MAGIC);
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(replayed(folder.path()).unwrap(), [1]);

    std::fs::write(&path, &whole[..ends[2]]).unwrap();
    drop(writer(folder.path(), 1));
    let error = replayed(folder.path()).unwrap_err();
    assert!(matches!(&error, RecoverError::Corrupt { offset, .. } if *offset == ends[0] as u64), "{error}");
}

#[test]
fn parts_that_are_given_up_leave_nothing_and_writes_continue() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    append(&mut journal, 1).unwrap();
    let before = journal.value_base();
    // More than a segment: parts stay in one.
    (2..60).for_each(|revision| part(&mut journal, revision).unwrap());
    assert_eq!(journal.value_base().0, before.0);
    fault::fail_next(Fault::Full);
    assert!(matches!(part(&mut journal, 60), Err(AppendError::NoSpace { .. })));
    journal.give_up().unwrap();
    assert_eq!(journal.value_base(), before);
    append(&mut journal, 2).unwrap();
    assert_eq!(replayed(folder.path()).unwrap(), [1, 2]);
}

#[test]
fn a_segment_that_outgrew_its_size_counts_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let segments = Arc::new(Segments::default());
    let mut journal = Writer::create(folder.path(), INCARNATION, 0, 4096, Arc::clone(&segments)).unwrap();
    (1..100).for_each(|revision| part(&mut journal, revision).unwrap());
    append(&mut journal, 100).unwrap();
    let on_disk: u64 = (1..=2).map(|at| std::fs::metadata(segment(folder.path(), at)).unwrap().len()).sum();
    assert!(on_disk > 3 * 4096);
    assert_eq!(segments.bytes(), on_disk);
    assert_eq!(replayed(folder.path()).unwrap().len(), 100);
}

#[test]
fn after_a_failed_fsync_nothing_more_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = writer(folder.path(), 0);
    append(&mut journal, 1).unwrap();
    fault::fail_next(Fault::Fsync);
    assert!(matches!(append(&mut journal, 2), Err(AppendError::Broken { .. })));
    assert!(matches!(append(&mut journal, 3), Err(AppendError::Broken { .. })));
}
