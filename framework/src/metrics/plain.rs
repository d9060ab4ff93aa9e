//! Prometheus' text format.

use std::fmt::Write;

/// Converts `OpenMetrics` text: counters are named as their samples, and there are no units and no end.
pub(super) fn plain(open: &str) -> String {
    let mut plain = String::with_capacity(open.len() + 1024);
    let mut help = None;
    for line in open.lines() {
        // Writing into a string does not fail.
        let _written = if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            Ok(())
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            let help = help.take().map_or(String::new(), |(_, help)| format!("# HELP {name}{suffix} {help}\n"));
            writeln!(plain, "{help}# TYPE {name}{suffix} {kind}")
        } else if line.starts_with('#') {
            Ok(())
        } else {
            match bound(line) {
                Some((start, bound, rest)) => writeln!(plain, "{start}{bound}{rest}"),
                None => writeln!(plain, "{line}"),
            }
        };
    }
    plain
}

/// Returns the bound of a bucket as Go prints it, since queries select bounds by their text, and the text before and after it.
fn bound(line: &str) -> Option<(&str, String, &str)> {
    let start = line.find("_bucket{").and_then(|bucket| Some(bucket + line[bucket..].find("le=\"")? + 4))?;
    let end = start + line[start..].find('"')?;
    let value: f64 = line[start..end].parse().ok().filter(|value: &f64| value.is_finite())?;
    let printed = if value == 0.0 || (1e-4..1e6).contains(&value) {
        value.to_string()
    } else {
        let printed = format!("{value:e}");
        let (digits, power) = printed.split_once('e')?;
        let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
        format!("{digits}e{sign}{power:0>2}")
    };
    Some((&line[..start], printed, &line[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_samples_names_and_bounds_are_written_as_in_go() {
        let open = "# HELP a_b Some.\n# TYPE a_b counter\na_b_total{x=\"1.0\"} 1\n# HELP h Times.\n# TYPE h histogram\n\
                    h_bucket{le=\"1e-8\"} 0\nh_bucket{le=\"0.0001\"} 0\nh_bucket{le=\"10.0\",x=\"y\"} 1\n\
                    h_bucket{le=\"1000000.0\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 3.0\n# UNIT h seconds\n# EOF\n";
        let expected = "# HELP a_b_total Some.\n# TYPE a_b_total counter\na_b_total{x=\"1.0\"} 1\n# HELP h Times.\n\
                        # TYPE h histogram\nh_bucket{le=\"1e-08\"} 0\nh_bucket{le=\"0.0001\"} 0\n\
                        h_bucket{le=\"10\",x=\"y\"} 1\nh_bucket{le=\"1e+06\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 3.0\n";
        assert_eq!(plain(open), expected);
    }
}
