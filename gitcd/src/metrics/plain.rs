//! `OpenMetrics` in the older text format of Prometheus, which most readers ask for.

use std::fmt::Write as _;

/// Counters that have no `_total` in etcd, and so none in this format.
const WITHOUT_TOTAL: [&str; 2] = ["etcd_server_health_success", "etcd_server_health_failures"];

/// The same figures: counters are named as their samples are, and there are no units and no end.
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
            let _ = match short {
                Some((name, rest)) => writeln!(plain, "{name}{rest}"),
                None => writeln!(plain, "{line}"),
            };
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

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
