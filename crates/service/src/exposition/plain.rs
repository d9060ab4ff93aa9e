//! Prometheus' text format.

use std::fmt::Write;

/// Converts `OpenMetrics` text: counters are named as their samples, and there are no units and no end marker. The counters in
/// `without_total` lose the suffix `_total`, which `OpenMetrics` requires and older programs do not have.
pub fn plain(open: &str, without_total: &[&str]) -> String {
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
                "counter" if without_total.contains(&name) => ("", kind),
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            let help = help.take().map_or(String::new(), |(_, help)| format!("# HELP {name}{suffix} {help}\n"));
            writeln!(plain, "{help}# TYPE {name}{suffix} {kind}")
        } else if line.starts_with('#') {
            Ok(())
        } else if let Some((name, rest)) = without_total.iter().find_map(|name| Some((name, sample_of(name, line)?))) {
            writeln!(plain, "{name}{rest}")
        } else if let Some((start, bound, rest)) = bound(line) {
            writeln!(plain, "{start}{bound}{rest}")
        } else {
            writeln!(plain, "{line}")
        };
    }
    plain
}

/// Returns the labels and the value of a counter's sample; `None` if the line is another metric's.
fn sample_of<'l>(counter: &str, line: &'l str) -> Option<&'l str> {
    line.strip_prefix(counter)?.strip_prefix("_total")
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
    fn bounds_are_printed_as_go_prints_them() {
        for (bound, printed) in [
            ("1e-8", "1e-08"),
            ("0.0001", "0.0001"),
            ("0.5", "0.5"),
            ("64.0", "64"),
            ("131072.0", "131072"),
            ("1000000.0", "1e+06"),
            ("1048576.0", "1.048576e+06"),
            ("+Inf", "+Inf"),
        ] {
            let line = |bound: &str| format!("a_bucket{{le=\"{bound}\",x=\"le\"}} 1\n");
            assert_eq!(plain(&line(bound), &[]), line(printed));
        }
        let other = "a_total{le=\"64.0\"} 1\n";
        assert_eq!(plain(other, &[]), other, "only buckets have bounds");
    }

    #[test]
    fn counters_are_named_as_their_samples_are() {
        let open = "# HELP a Some.\n# TYPE a counter\na_total{x=\"1.0\"} 2\n# HELP b Other.\n# TYPE b gauge\n# UNIT b bytes\nb 1\n\
                    # HELP i Build.\n# TYPE i info\ni_info{version=\"1\"} 1\n# TYPE u unknown\nu 1\n\
                    # TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 3.0\n\
                    # TYPE health_success counter\nhealth_success_total 3\n# EOF\n";
        let expected = "# HELP a_total Some.\n# TYPE a_total counter\na_total{x=\"1.0\"} 2\n# HELP b Other.\n# TYPE b gauge\nb 1\n\
                        # HELP i_info Build.\n# TYPE i_info gauge\ni_info{version=\"1\"} 1\n# TYPE u untyped\nu 1\n\
                        # TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 3.0\n\
                        # TYPE health_success counter\nhealth_success 3\n";
        assert_eq!(plain(open, &["health_success"]), expected);
    }
}
