//! Conversion of `OpenMetrics` to Prometheus' older text format, which most clients request.

use std::fmt::Write as _;

/// Counters without `_total` in etcd, and so in this format.
const WITHOUT_TOTAL: [&str; 2] = ["etcd_server_health_success", "etcd_server_health_failures"];

/// Converts metrics to plain text: counters are named like their samples, and there are no units and no end marker.
pub fn plain(open: &str) -> String {
    let mut plain = String::with_capacity(open.len() + 4096);
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" if WITHOUT_TOTAL.contains(&name) => ("", kind),
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                // Writing into a string does not fail.
                let _ = writeln!(plain, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(plain, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            let short = WITHOUT_TOTAL.iter().find_map(|name| {
                let rest = line.strip_prefix(name)?.strip_prefix("_total")?;
                Some((name, rest))
            });
            let _ = match (short, bound(line)) {
                (Some((name, rest)), _) => writeln!(plain, "{name}{rest}"),
                (None, Some((start, bound, rest))) => writeln!(plain, "{start}{bound}{rest}"),
                (None, None) => writeln!(plain, "{line}"),
            };
        }
    }
    plain
}

/// Returns the bound of a bucket as Go prints it, since queries match it as text, between the texts before and after it.
fn bound(line: &str) -> Option<(&str, String, &str)> {
    let start = line.find("le=\"")? + 4;
    let end = start + line[start..].find('"')?;
    let value: f64 = line[start..end].parse().ok().filter(|value: &f64| value.is_finite())?;
    let printed = if value < 1e6 {
        value.to_string()
    } else {
        let printed = format!("{value:e}");
        let (digits, power) = printed.split_once('e')?;
        format!("{digits}e+{power:0>2}")
    };
    Some((&line[..start], printed, &line[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_printed_as_go_prints_them() {
        for (bound, printed) in [
            ("0.0001", "0.0001"),
            ("64.0", "64"),
            ("131072.0", "131072"),
            ("1048576.0", "1.048576e+06"),
            ("0.5", "0.5"),
            ("+Inf", "+Inf"),
        ] {
            let line = |bound: &str| format!("a_bucket{{le=\"{bound}\",x=\"le\"}} 1\n");
            assert_eq!(plain(&line(bound)), line(printed));
        }
    }

    #[test]
    fn counters_are_named_as_their_samples_are() {
        let open = "# HELP a Some.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b Other.\n# TYPE b gauge\n# UNIT b bytes\nb 1\n\
                    # HELP i Build.\n# TYPE i info\ni_info{version=\"1\"} 1\n\
                    # TYPE etcd_server_health_success counter\netcd_server_health_success_total 3\n# EOF\n";
        let expected = "# HELP a_total Some.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP b Other.\n# TYPE b gauge\nb 1\n\
                        # HELP i_info Build.\n# TYPE i_info gauge\ni_info{version=\"1\"} 1\n\
                        # TYPE etcd_server_health_success counter\netcd_server_health_success 3\n";
        assert_eq!(plain(open), expected);
    }
}
