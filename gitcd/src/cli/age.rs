//! Ages in short form.

use std::time::SystemTime;

const UNITS: [(u64, &str); 5] = [(365 * 24 * 3600, "y"), (24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s")];

/// Formats an age as `12s`, `3m`, `5h`, `40d`, `2y`, rounded down.
pub(super) fn words(seconds: u64) -> String {
    let unit = UNITS.iter().find(|(unit, _)| seconds >= *unit).unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{}{}", seconds / unit.0, unit.1)
}

/// Returns the seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn an_age_is_printed_in_its_largest_unit() {
        let formatted = [0, 59, 60, 3599, 7200, 86_400 * 40, 86_400 * 800].map(words);
        assert_eq!(formatted, ["0s", "59s", "1m", "59m", "2h", "40d", "2y"]);
    }
}
