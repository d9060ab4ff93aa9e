//! Finds the last lines of a file without reading all of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const BLOCK_BYTES: usize = 64 << 10;

/// Returns where the last `lines` lines of the first `len` bytes start. Reads no more than these lines, in whole blocks.
pub(super) fn start(file: &File, len: u64, lines: u64) -> io::Result<u64> {
    let Some(mut missing) = lines.checked_sub(1) else { return Ok(len) };
    let mut block = vec![0; BLOCK_BYTES];
    let mut end = len;
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES as u64);
        let block = &mut block[..(end - start) as usize];
        match file.read_exact_at(block, start) {
            // It was truncated in the meantime.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            read => read?,
        }
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = start + at as u64 + 1;
            if after == len {
                // It ends the last line.
            } else if missing == 0 {
                return Ok(after);
            } else {
                missing -= 1;
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn the_last_lines_start_after_a_line_break() {
        for (text, lines, expected) in [
            ("", 3, 0),
            ("a\nb\nc\n", 0, 6),
            ("a\nb\nc\n", 1, 4),
            ("a\nb\nc", 1, 4),
            ("a\nb\nc\n", 2, 2),
            ("a\nb\nc\n", 3, 0),
            ("a\nb\nc\n", u64::MAX, 0),
            ("a\n\n", 1, 2),
            ("\n", 1, 0),
        ] {
            let found = start(&file(text.as_bytes()), text.len() as u64, lines).unwrap();
            assert_eq!(found, expected, "{lines} of {text:?}");
        }
    }

    #[test]
    fn lines_may_be_longer_than_a_block_and_the_file_shorter_than_it_was() {
        let text = [&b"first\n"[..], &vec![b'x'; 3 * BLOCK_BYTES], b"\nlast\n"].concat();
        let file = file(&text);
        let len = text.len() as u64;
        assert_eq!(start(&file, len, 1).unwrap(), len - 5);
        assert_eq!(start(&file, len, 2).unwrap(), 6);
        file.set_len(3).unwrap();
        assert_eq!(start(&file, len, 2).unwrap(), 0);
    }

    #[test]
    fn a_huge_log_is_not_read_whole() {
        let file = file(b"");
        // Without blocks on the disk; reading it would take minutes.
        let hole = 1 << 40;
        file.write_all_at(b"\na\nb\n", hole).unwrap();
        assert_eq!(start(&file, hole + 5, 2).unwrap(), hole + 1);
    }
}
