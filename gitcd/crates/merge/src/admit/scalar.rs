//! Whether Kubernetes can decode a scalar, by the rules of its Go types.

/// Suffixes of quantities, except for exponents.
const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Returns whether a text is a quantity: `ParseQuantity` of `k8s.io/apimachinery/pkg/api/resource`.
pub(super) fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, |rest| 1 + digits(rest));
    if whole + fraction == 0 || (whole == 0 && fraction == 1) {
        return false;
    }
    let suffix = &text[whole + fraction..];
    let is_exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        Some(exponent.len() == digits(exponent) && exponent.parse::<i32>().is_ok())
    };
    SUFFIXES.contains(&suffix) || is_exponent() == Some(true)
}

/// Returns whether a text is base64 with padding, on one or more lines: `base64.StdEncoding`.
pub(super) fn is_base64(text: &str) -> bool {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    text.len().is_multiple_of(4)
        && padding <= 2
        && text[..text.len() - padding].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Returns whether a text is an RFC 3339 time, with as many fractional digits as `fraction` allows: `time.Parse`.
pub(super) fn is_time(text: &str, fraction: impl Fn(usize) -> bool) -> bool {
    read_time(text, fraction).is_some()
}

fn read_time(text: &str, fraction: impl Fn(usize) -> bool) -> Option<()> {
    let number = |text: &str, digits: usize| -> Option<u32> {
        (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (date, time) = text.split_once('T')?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if date.next().is_some() || day == 0 || day > days {
        return None;
    }
    let zone = time.find(['Z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let is_zone = zone == "Z" || {
        let (hours, minutes) = zone.get(1..)?.split_once(':')?;
        number(hours, 2)? <= 24 && number(minutes, 2)? < 60 && zone.starts_with(['+', '-'])
    };
    let mut parts = time.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let (second, behind) = second.split_at_checked(2)?;
    let digits = match behind.strip_prefix(['.', ',']) {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.len(),
        None if behind.is_empty() => 0,
        _ => return None,
    };
    let is_hour = number(hour, 2).or_else(|| number(hour, 1))? < 24;
    (is_zone
        && parts.next().is_none()
        && is_hour
        && number(minute, 2)? < 60
        && number(second, 2)? < 60
        && fraction(digits))
    .then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_that_kubernetes_reads() {
        for good in
            ["0", "1", "-1", "+1.5", "1.", ".5", "100m", "1Gi", "1.5Gi", "1e3", "1E-3", "12E", "0.1n", "5Ei", "1e"]
        {
            // "1e" has an empty exponent, so it is not a number.
            assert_eq!(is_quantity(good), good != "1e", "{good}");
        }
        for bad in ["", " 1", "1 Gi", "1gi", "1K", "1KB", "a", ".", "+", "1e1.5", "1..2", "true", "0x1", "1mm", "--1"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn base64_is_that_of_go() {
        for good in ["", "AAEC", "AA==", "AAE=", "AA\nEC\r\n", "+/+/"] {
            assert!(is_base64(good), "{good}");
        }
        for bad in ["A", "AAE", "AA=", "A===", "AA==AAEC", "-_-_", "AA C", "päss"] {
            assert!(!is_base64(bad), "{bad}");
        }
    }

    #[test]
    fn times_are_those_of_go() {
        for good in ["2024-02-29T23:59:59Z", "2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00+01:00"] {
            assert!(is_time(good, |_| true), "{good}");
        }
        for bad in [
            "",
            "now",
            "2024-01-01",
            "2023-02-29T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01 00:00:00Z",
            "2024-01-01t00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-13-01T00:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+0100",
        ] {
            assert!(!is_time(bad, |_| true), "{bad}");
        }
        assert!(is_time("2024-01-01T00:00:00.123456Z", |digits| digits == 6));
        assert!(!is_time("2024-01-01T00:00:00Z", |digits| digits == 6));
    }
}
