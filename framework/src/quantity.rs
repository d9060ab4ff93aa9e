//! Quantities (`100m`, `1.5Gi`, `1e3`), which an apiserver rewrites.

/// Returns whether two quantities are equal, in whatever notation. A text that is not a quantity equals only itself.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one == other || nanos(one).is_some_and(|amount| nanos(other) == Some(amount))
}

/// Converts to billionths, the smallest unit of Kubernetes; `None` if it is not a quantity, or too large.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let (exponent, factor) = match suffix {
        "" => (0, 1),
        "n" => (-9, 1),
        "u" => (-6, 1),
        "m" => (-3, 1),
        "k" => (3, 1),
        "M" => (6, 1),
        "G" => (9, 1),
        "T" => (12, 1),
        "P" => (15, 1),
        "E" => (18, 1),
        "Ki" => (0, 1 << 10),
        "Mi" => (0, 1 << 20),
        "Gi" => (0, 1 << 30),
        "Ti" => (0, 1 << 40),
        "Pi" => (0, 1 << 50),
        "Ei" => (0, 1 << 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 1),
    };
    let exponent = i32::checked_add(exponent, 9)?.checked_sub(decimals)?;
    let amount = mantissa.checked_mul(factor)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { amount.checked_mul(power) } else { (amount % power == 0).then(|| amount / power) }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn an_amount_is_the_same_however_it_is_written() {
        for (one, other) in
            [("1", "1000m"), ("1024Mi", "1Gi"), ("0.5Gi", "512Mi"), ("1e3", "1k"), ("1E3", "1000"), (".5", "500m")]
        {
            assert!(is_same(one, other) && is_same(other, one), "{one} {other}");
        }
        for (one, other) in [("1", "1m"), ("1M", "1Mi"), ("1E", "1"), ("", "0"), ("much", "1"), ("1e99", "2e99")] {
            assert!(!is_same(one, other) && is_same(one, one), "{one} {other}");
        }
    }
}
