//! Resource quantities: `k8s.io/apimachinery/pkg/api/resource`.

/// Parses a quantity into units of 10⁻⁹, rounded away from zero; `None` if the text is not a quantity or is too large to compare.
pub(super) fn nano(text: &str) -> Option<i128> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    // The number is `mantissa` / 10^`digits`.
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, exponent) = scale(suffix)?;
    let power = 9 + exponent - i32::try_from(fraction.len()).ok()?;
    let ten = 10_i128.checked_pow(power.unsigned_abs());
    let scaled = mantissa.checked_mul(factor)?;
    let amount = match (power >= 0, ten) {
        (true, Some(ten)) => scaled.checked_mul(ten)?,
        (true, None) if scaled == 0 => 0,
        (true, None) => return None,
        (false, Some(ten)) => scaled / ten + i128::from(scaled % ten != 0),
        (false, None) => i128::from(scaled != 0),
    };
    Some(if is_negative { -amount } else { amount })
}

/// Returns the factor of a suffix, and the power of ten to multiply with.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|it: &i32| it.abs() < 1000)?),
    })
}

#[cfg(test)]
mod tests {
    use super::nano;

    #[test]
    fn quantities_are_compared_by_their_amounts() {
        let unit = 1_000_000_000;
        for (text, amount) in [
            ("0", 0),
            ("1", unit),
            ("+1.5", unit + unit / 2),
            ("100m", unit / 10),
            ("-2k", -2_000 * unit),
            ("1Ki", 1024 * unit),
            ("0.5Gi", 512 * 1024 * 1024 * unit),
            ("1e3", 1000 * unit),
            ("12E-1", 6 * unit / 5),
            ("2E", 2 * 10_i128.pow(18) * unit),
            (".1n", 1),
            ("1.", unit),
        ] {
            assert_eq!(nano(text), Some(amount), "{text}");
        }
        for text in ["", "m", ".", "1.2.3", "1x", "1 Gi", "99999999999999999999999999999999E"] {
            assert_eq!(nano(text), None, "{text}");
        }
    }
}
