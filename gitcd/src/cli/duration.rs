//! Durations in flags, in Go's format, as in etcd's flags.

use std::time::Duration;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SECOND: u64 = 1_000_000_000;

/// Parses `10m`, `1h30m`, `1.5s`, `300ms`; a number without a unit is in seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    in_units_of(text, SECOND)
}

/// Parses the same, but a number without a unit is in hours.
pub(super) fn parse_hours(text: &str) -> Result<Duration, String> {
    in_units_of(text, 3600 * SECOND)
}

fn in_units_of(text: &str, nanos: u64) -> Result<Duration, String> {
    let total = match text.parse::<u64>() {
        Ok(number) => number.checked_mul(nanos),
        Err(_) => sum(text),
    };
    // Go's longest duration, 292 years.
    let total = total.filter(|total| i64::try_from(*total).is_ok());
    total.map(Duration::from_nanos).ok_or_else(|| "not a duration such as 10m, 1h30m or 500ms".to_owned())
}

/// Adds up all numbers with their units, in nanoseconds.
fn sum(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total: u64 = 0;
    loop {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (whole, fraction) = rest[..number].split_once('.').unwrap_or((&rest[..number], ""));
        rest = &rest[number..];
        let length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..length])?;
        rest = &rest[length..];
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(*unit)?)?.checked_add(part(fraction, *unit)?)?;
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// Converts the digits after a decimal point, of `unit`, to nanoseconds, rounded down.
fn part(digits: &str, unit: u64) -> Option<u64> {
    let digits = &digits[..digits.len().min(18)];
    let number: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    u64::try_from(number * u128::from(unit) / 10_u128.pow(digits.len() as u32)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them_and_plain_numbers_as_seconds() {
        let cases = [
            ("0", Duration::ZERO),
            ("600", Duration::from_mins(10)),
            ("0s", Duration::ZERO),
            ("10m", Duration::from_mins(10)),
            ("+5s", Duration::from_secs(5)),
            ("1h30m", Duration::from_mins(90)),
            ("1h0m0.5s", Duration::from_millis(3_600_500)),
            ("1.5h", Duration::from_mins(90)),
            (".5s", Duration::from_millis(500)),
            ("5.s", Duration::from_secs(5)),
            ("300ms", Duration::from_millis(300)),
            ("0.1s", Duration::from_millis(100)),
            ("0.3333333333333333333h", Duration::from_nanos(1_199_999_999_999)),
            ("9.999999999s", Duration::from_nanos(9_999_999_999)),
            ("1us2ns", Duration::from_nanos(1002)),
            ("1\u{b5}s", Duration::from_micros(1)),
            ("1\u{3bc}s", Duration::from_micros(1)),
            ("2562047h", Duration::from_hours(2_562_047)),
        ];
        for (text, duration) in cases {
            assert_eq!(parse(text), Ok(duration), "{text}");
        }
        assert_eq!(parse_hours("2"), Ok(Duration::from_hours(2)));
        assert_eq!(parse_hours("2m"), Ok(Duration::from_mins(2)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            " ",
            "-1s",
            "-1",
            "s",
            ".s",
            ".",
            "1.2",
            "1x",
            "1h2",
            "1 s",
            "1..2s",
            "3000000h",
            "99999999999999999999s",
            "1e3s",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_duration_is_read_back_as_it_was_written(nanos in 0..i64::MAX as u64) {
            let (minutes, rest) = (nanos / (60 * SECOND), nanos % (60 * SECOND));
            let (hours, minutes) = (minutes / 60, minutes % 60);
            let text = format!("{hours}h{minutes}m{}.{:09}s", rest / SECOND, rest % SECOND);
            proptest::prop_assert_eq!(parse(&text), Ok(Duration::from_nanos(nanos)));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[0-9.+hmsnuµ-]{0,12}") {
            let _ = parse(&text);
        }
    }
}
