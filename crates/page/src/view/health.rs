//! The health of the control plane.

use maud::{Markup, html};

use super::{Rendered, page, text};
use crate::health::{BranchHealth, ComponentHealth, Finding, HealthReport, HealthState, RemoteHealth, StoreSize};

/// Milliseconds between two reads of an open page.
const POLL: u32 = 5000;
/// Details of a problem.
const DETAILS: usize = 20;
/// Share of the quota from which the size is marked, in percent.
const NEARLY_FULL: u64 = 80;

/// Renders the health. `is_detailed`: the user may read everything, so errors may name objects. `problem` is why that is not known.
pub(crate) fn health(report: &HealthReport, is_detailed: bool, problem: Option<&str>) -> Rendered {
    let HealthReport { state, branches, components, problems } = report;
    let word = state.as_ref().map_or("unknown", |state| state.word.as_str());
    let main = html! {
        h1 { "Health" }
        div #health data-head=(word) data-poll=(POLL) data-live {
            p.state { "State: " (mark(state.as_ref())) }
            (findings(problems, is_detailed))
            @if let Some(problem) = problem { p.note { "Errors are not shown in full: " (text::line(problem)) } }
            @else if !is_detailed { p.note { "Errors are not shown in full: they may name objects, which needs the right to everything." } }
            @for branch in branches { (section(branch, is_detailed)) }
            @if !components.is_empty() { h2 { "Components" } (processes(components)) }
        }
    };
    page("Health", "", &main)
}

fn mark(state: Option<&HealthState>) -> Markup {
    html! {
        @match state {
            Some(HealthState { word, is_good: true }) => strong.mark { (text::line(word)) },
            Some(HealthState { word, .. }) => strong.mark.warn { (text::line(word)) },
            None => strong.mark.warn { "unknown" },
        }
    }
}

fn section(branch: &BranchHealth, is_detailed: bool) -> Markup {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let count = |number: Option<u64>| number.map(|number| number.to_string());
    html! {
        section {
            h2 { (text::line(&branch.name)) " " (mark(Some(&branch.state))) }
            dl.facts {
                (fact("Branch", Some(branch.reference.strip_prefix("refs/heads/").unwrap_or(&branch.reference))))
                (fact("Role", branch.role.as_deref()))
                @if let Some(head) = &branch.head { dt { "Head" } dd { code { (text::line(head.get(..10).unwrap_or(head))) } } }
                (fact("Revision", number(branch.revision).as_deref()))
                (fact("Committed revision", number(branch.committed_revision).as_deref()))
                (fact("Commit lag", Some(&lag(branch))))
                (fact("Rejected files", Some(count(branch.rejected).as_deref().unwrap_or("unknown"))))
                (fact("Conflicts", Some(count(branch.conflicts).as_deref().unwrap_or("unknown"))))
                dt { "Size" } dd { (size(branch.size)) }
                (fact("Restarts", branch.restarts.map(|restarts| restarts.to_string()).as_deref()))
            }
            (findings(&branch.problems, is_detailed))
            @if !branch.remotes.is_empty() { h3 { "Remotes" } (remotes(&branch.remotes)) }
        }
    }
}

fn fact(name: &str, value: Option<&str>) -> Markup {
    html! { @if let Some(value) = value { dt { (name) } dd { (text::line(value)) } } }
}

fn lag(branch: &BranchHealth) -> String {
    match (branch.lag_revisions, branch.lag_seconds) {
        (Some(0), _) => "none".to_owned(),
        (Some(revisions), Some(seconds)) => format!("{}, {seconds:.1} s", counted(revisions, "revision")),
        (Some(revisions), None) => counted(revisions, "revision"),
        (None, Some(seconds)) => format!("{seconds:.1} s"),
        (None, None) => "unknown".to_owned(),
    }
}

fn size(size: Option<StoreSize>) -> Markup {
    let Some(StoreSize { bytes: used, quota }) = size else { return html! { "unknown" } };
    html! {
        (bytes(used))
        @match quota {
            Some(quota) => {
                " of " (bytes(quota))
                @if used >= quota / 100 * NEARLY_FULL { " " strong.mark.warn { "nearly full" } }
            },
            None => ", without a quota",
        }
    }
}

fn counted(number: u64, noun: &str) -> String {
    text::count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

/// Formats a number of bytes.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut number, mut unit) = (bytes as f64 / 1024.0, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}

fn findings(findings: &[Finding], is_detailed: bool) -> Markup {
    html! {
        @if !findings.is_empty() {
            ul.problems {
                @for Finding { what, details } in findings {
                    li {
                        strong.mark.warn { (text::line(what)) }
                        @if is_detailed && !details.is_empty() {
                            ul {
                                @for detail in details.iter().take(DETAILS) { li { pre { (text::block(detail)) } } }
                                @if details.len() > DETAILS { li { (text::count(details.len() - DETAILS, "more line")) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn remotes(remotes: &[RemoteHealth]) -> Markup {
    let behind = |remote: &RemoteHealth| {
        let Some(commits) = remote.lag_commits else { return "unknown".to_owned() };
        let more = if remote.has_more { "more than " } else { "" };
        match (commits, remote.lag_seconds) {
            (0, _) if !remote.has_more => "nothing to merge".to_owned(),
            (_, Some(seconds)) => format!("{more}{}, {}", counted(commits, "commit"), span(seconds as u64)),
            (_, None) => format!("{more}{}", counted(commits, "commit")),
        }
    };
    let row = |remote: &RemoteHealth| {
        let branch = remote.reference.strip_prefix("refs/heads/").unwrap_or(&remote.reference);
        // What is not known of a remote is no fault of it.
        let condition = remote.condition.as_ref().map_or_else(|| html! { "unknown" }, |state| mark(Some(state)));
        [text::line(&remote.name), text::line(branch), condition, html! { (behind(remote)) }]
    };
    table(["Remote", "Branch", "Condition", "Behind"], remotes.iter().map(row))
}

fn processes(components: &[ComponentHealth]) -> Markup {
    let row = |component: &ComponentHealth| {
        let uptime = component.uptime_seconds.map_or_else(|| "-".to_owned(), span);
        [text::line(&component.name), mark(Some(&component.state)), html! { (uptime) }, html! { (component.restarts) }]
    };
    table(["Component", "State", "Uptime", "Restarts"], components.iter().map(row))
}

/// Renders a table, the first column of which names the rows.
fn table<const COLUMNS: usize>(names: [&str; COLUMNS], rows: impl Iterator<Item = [Markup; COLUMNS]>) -> Markup {
    html! {
        table {
            thead { tr { @for name in names { th scope="col" { (name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (column, cell) in row.into_iter().enumerate() {
                            @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

/// Formats a duration in its largest unit, so that an open page changes seldom.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_short() {
        assert_eq!([0, 1536, 8 << 30, u64::MAX].map(bytes), ["0.0 KiB", "1.5 KiB", "8.0 GiB", "16777216.0 TiB"]);
        assert_eq!([59, 60, 7200, 90_000].map(span), ["59 s", "1 min", "2 h", "1 d"]);
    }

    #[test]
    fn what_is_not_known_is_not_healthy() {
        let branch = BranchHealth { name: "desk".into(), ..BranchHealth::default() };
        let report = HealthReport { branches: vec![branch], ..HealthReport::default() };
        let body = health(&report, true, None).0;
        assert!(body.contains("State: <strong class=\"mark warn\">unknown</strong>"), "{body}");
        assert!(body.contains("<dt>Commit lag</dt><dd><bdi>unknown</bdi></dd>"), "{body}");
        assert_eq!(
            body.matches("unknown").count(),
            6,
            "state, lag, rejected, conflicts, size, and the head of the part: {body}"
        );
    }

    #[test]
    fn a_store_near_its_quota_is_marked() {
        let of = |bytes| size(Some(StoreSize { bytes, quota: Some(1000) })).into_string();
        assert!(!of(700).contains("nearly full") && of(900).contains("nearly full"));
    }
}
