//! Output of `status`, `list`, `down`, `delete`, `demo` and `new`.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::Style;
use trishanku::demo::Outcome;
use trishanku::down::Down;
use trishanku::list::Listed;
use trishanku::plane::leftovers::Leftover;
use trishanku::plane::state::Condition;
use trishanku::scaffold::Name;
use trishanku::status::{ComponentReport, Health, HeavenReport, Report, Unlistable};

use crate::args;
use crate::styles::{BAD, GOOD, STRONG, WARN};
use trishanku_stdio::text::quoted;

/// Prints an error with all its causes on standard error.
pub(crate) fn error(error: &anyhow::Error) {
    trishanku_stdio::eprintln!("{BAD}error:{BAD:#} {error:#}");
}

pub(crate) fn down(outcome: &Down) {
    match outcome {
        Down::NotRunning => trishanku_stdio::println!("Nothing was running"),
        Down::Stopped => trishanku_stdio::println!("Stopped; the data stays"),
        Down::EndedLeftovers(processes) => ended(processes, "its supervisor was gone"),
        Down::EndedStrays(processes) => ended(processes, "its state folder was gone"),
    }
}

fn ended(processes: &[Leftover], reason: &str) {
    for Leftover { name, pid, .. } in processes {
        trishanku_stdio::println!("{WARN}ended{WARN:#} {name} (process {pid}): {reason}");
    }
}

/// Prints what `delete` stopped, and the folder that it removed.
pub(crate) fn deleted(outcome: &Down, dir: Option<&Path>) {
    if matches!(outcome, Down::EndedLeftovers(_) | Down::EndedStrays(_)) {
        down(outcome);
    }
    if let Some(dir) = dir {
        let stopped = if *outcome == Down::NotRunning { "" } else { "Stopped and " };
        let verb = if stopped.is_empty() { "Deleted" } else { "deleted" };
        trishanku_stdio::println!("{stopped}{verb} {}", dir.display());
    }
}

/// Prints the control planes of this machine.
pub(crate) fn list(listed: &[Listed], json: bool) -> anyhow::Result<()> {
    let mut out = trishanku_stdio::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, listed)?;
        writeln!(out)?;
        return Ok(());
    }
    if listed.is_empty() {
        writeln!(out, "There is no control plane; `trishanku up` brings one up")?;
        return Ok(());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let since =
        |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", span(now.saturating_sub(at))));
    let mut rows = vec![["NAME", "STATE", "SINCE", "HEAVENS"].map(ToOwned::to_owned)];
    rows.extend(listed.iter().map(|plane| {
        let state = plane.health.map_or("unknown", Health::word);
        let heavens = if plane.heavens.is_empty() { "-".to_owned() } else { plane.heavens.join(",") };
        [
            plane.name.clone().unwrap_or_else(|| "-".to_owned()),
            state.to_owned(),
            since(plane.since_unix_seconds),
            heavens,
        ]
    }));
    let widths: Vec<usize> =
        (0..4).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or_default()).collect();
    for (at, [name, state, since, heavens]) in rows.iter().enumerate() {
        let folder = at.checked_sub(1).map_or_else(|| "FOLDER".to_owned(), |at| listed[at].dir.display().to_string());
        let style = if at == 0 { STRONG } else { Style::new() };
        let [first, second, third, fourth] = [widths[0], widths[1], widths[2], widths[3]];
        writeln!(
            out,
            "{style}{name:<first$}  {state:<second$}  {since:<third$}  {heavens:<fourth$}  {folder}{style:#}"
        )?;
    }
    for plane in listed {
        if let Some(error) = &plane.error {
            writeln!(out, "\n{WARN}{}:{WARN:#} {error}", plane.dir.display())?;
        }
    }
    Ok(())
}

/// Prints the result of `new`, and the next steps.
pub(crate) fn new_controller(name: &Name) {
    let (kind, name) = (name.kind(), name.as_str());
    trishanku_stdio::println!("{GOOD}Made{GOOD:#} {STRONG}{name}{STRONG:#}, a controller of {kind} objects");
    trishanku_stdio::println!("\n  cd {name}");
    trishanku_stdio::println!("  cargo test                 # on a real kube-apiserver");
    trishanku_stdio::println!("  kubectl apply -k deploy    # to your cluster; README.md says more");
}

/// Prints what the demo found out.
pub(crate) fn demo(outcome: &Outcome, options: &args::Demo) -> anyhow::Result<()> {
    let mut out = trishanku_stdio::stdout();
    let Outcome { deployment, story, bound_after, node_stays } = outcome;
    if options.json {
        let whole = serde_json::json!({"deployment": deployment, "bound_after_seconds": bound_after.as_secs_f64(), "story": story});
        serde_json::to_writer_pretty(&mut out, &whole)?;
        writeln!(out)?;
        return Ok(());
    }
    let replicas = options.replicas;
    writeln!(out, "A Deployment of {replicas} pods is made at the desk. By the commits of the branches:\n")?;
    let width = story.chapters.iter().map(|chapter| chapter.heaven.len()).max().unwrap_or(0).max("BRANCH OF".len());
    let what = story.chapters.iter().map(|chapter| chapter.what.len()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{STRONG}{:>15}  {:<width$}  {:<what$}  {:>7}  {:<10}  {:>11}{STRONG:#}",
        "WHEN", "BRANCH OF", "WHAT", "COMMITS", "FIRST", "AT THE DESK"
    )?;
    for chapter in &story.chapters {
        let from = format!("{:.3}s", chapter.from_seconds);
        let when = if chapter.to_seconds > chapter.from_seconds + 0.0005 {
            format!("{from}…{:.3}s", chapter.to_seconds)
        } else {
            from
        };
        let desk = chapter.at_desk_seconds.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}s"));
        writeln!(
            out,
            "{when:>15}  {:<width$}  {:<what$}  {:>7}  {:<10}  {desk:>11}",
            chapter.heaven, chapter.what, chapter.commits, chapter.first
        )?;
    }
    writeln!(out, "\nIn between, {} merge commits.", story.merges)?;
    let by = |what: &str| story.maker(what).unwrap_or("unknown").to_owned();
    writeln!(
        out,
        "{GOOD}The ReplicaSet was made by {}, the pods by {}, their node was chosen by {}.{GOOD:#}",
        by("create replicasets"),
        by("create pods"),
        by("update pods")
    )?;
    writeln!(
        out,
        "All {replicas} pods had a node at the desk {STRONG}{:.3}s{STRONG:#} after `kubectl create` began.",
        bound_after.as_secs_f64()
    )?;
    if options.keep {
        writeln!(out, "It stays until you delete it: `trishanku kubectl delete deployment {deployment}`.")?;
    }
    if *node_stays {
        writeln!(
            out,
            "The placeholder node stays, because other pods are bound to it: `trishanku kubectl get nodes`."
        )?;
    }
    Ok(())
}

pub(crate) fn status(report: &Report, json: bool) -> anyhow::Result<()> {
    let mut out = trishanku_stdio::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    let (style, word) = match report.health {
        Health::Ready => (GOOD, "ready"),
        Health::Starting => (WARN, "starting"),
        Health::StandingBy => (GOOD, "standing by: another server writes"),
        Health::Degraded => (WARN, "degraded"),
        Health::Stopping => (WARN, "stopping"),
        Health::Stopped => (STRONG, "stopped"),
        Health::Orphaned => (BAD, "without supervisor; run `up` or `down`"),
    };
    writeln!(out, "{style}{word}{style:#}  {}", report.dir.display())?;
    if report.health != Health::Stopped {
        details(&mut out, report)?;
    }
    if report.kubeconfig.exists() {
        writeln!(out, "\nkubeconfig  {}", report.kubeconfig.display())?;
    }
    if let Some(repository) = report.repository.as_ref().filter(|r| r.exists()) {
        writeln!(out, "repository  {}", repository.display())?;
    }
    Ok(())
}

fn details(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    if !report.heavens.is_empty() {
        heavens(out, report)?;
    }
    let width = report.components.iter().map(|component| component.name.len()).max().unwrap_or(0).max(24);
    writeln!(
        out,
        "\n{STRONG}{:<width$} {:>8}  {:<12} {:>5}  {:>8}  {:>8}{STRONG:#}",
        "COMPONENT", "PID", "STATE", "PORT", "UPTIME", "RESTARTS"
    )?;
    for component in &report.components {
        row(out, component, width)?;
    }
    for failure in report.components.iter().filter_map(|component| component.failure.as_ref()) {
        writeln!(out, "\n{failure}")?;
    }
    unlistable(out, &report.unlistable)?;
    if let Some(store) = &report.store {
        writeln!(out)?;
        if let Some(revision) = store.revision {
            writeln!(out, "revision    {revision}")?;
        }
        if let Some(revision) = store.committed_revision {
            writeln!(out, "committed   {revision}")?;
        }
        if let Some(lag) = store.commit_lag_seconds {
            writeln!(out, "commit lag  {lag:.1}s")?;
        }
    }
    Ok(())
}

fn heavens(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let width = report.heavens.iter().map(|heaven| heaven.name.len()).max().unwrap_or(0).max("HEAVEN".len());
    let short = |heaven: &HeavenReport| heaven.branch.trim_start_matches("refs/heads/").to_owned();
    let branches = report.heavens.iter().map(|heaven| short(heaven).len()).max().unwrap_or(0).max("BRANCH".len());
    writeln!(
        out,
        "\n{STRONG}{:<width$}  {:<branches$}  {:<10}  {:>8}  {:>6}  {:>11}  {:>9}  {:>8}{STRONG:#}",
        "HEAVEN", "BRANCH", "HEAD", "REVISION", "BEHIND", "LAST MERGE", "CONFLICTS", "RESTARTS"
    )?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    for heaven in &report.heavens {
        let (behind, merged_at) = heaven.behind();
        writeln!(
            out,
            "{:<width$}  {:<branches$}  {:<10}  {:>8}  {:>6}  {:>11}  {:>9}  {:>8}",
            heaven.name,
            short(heaven),
            or_dash(heaven.head.as_ref().map(|head| head.chars().take(10).collect())),
            or_dash(heaven.revision.map(|revision| revision.to_string())),
            or_dash(behind.map(|behind| behind.to_string())),
            or_dash(merged_at.map(|at| format!("{} ago", span(now.saturating_sub(at))))),
            heaven.conflicts,
            heaven.restarts,
        )?;
        for remote in &heaven.remotes {
            if let Some(condition) = remote.condition.as_ref().filter(|condition| *condition != "Synced") {
                let why = remote.error.as_deref().unwrap_or_default();
                writeln!(out, "  {WARN}{}: {condition}{WARN:#} {why}", remote.name)?;
            }
        }
        if let Some(error) = &heaven.error {
            writeln!(out, "  {WARN}{error}{WARN:#}")?;
        }
    }
    if report.heavens.iter().any(|heaven| heaven.conflicts > 0)
        && let Some(repository) = report.repository.as_ref().filter(|repository| repository.exists())
    {
        let repository = quoted(repository);
        writeln!(out, "\nconflicts   git -C {repository} log --branches --merges --grep=^Conflict:")?;
    }
    Ok(())
}

fn unlistable(out: &mut impl Write, kinds: &[Unlistable]) -> std::io::Result<()> {
    for Unlistable { heaven, resource, reason, after } in kinds {
        let apiserver = heaven.as_ref().map_or_else(String::new, |heaven| format!("{heaven}/"));
        let which = match after {
            Some(after) => format!("; the unreadable object is the next one after {after}"),
            None => String::new(),
        };
        writeln!(out, "\n{BAD}{apiserver}kube-apiserver cannot list {resource}:{BAD:#} {reason}{which}")?;
    }
    if !kinds.is_empty() {
        writeln!(out, "Correct or delete the object's file on the branch, and push the change.")?;
    }
    Ok(())
}

fn row(out: &mut impl Write, component: &ComponentReport, width: usize) -> std::io::Result<()> {
    let style = match component.condition {
        Condition::Ready => GOOD,
        Condition::Starting | Condition::BackingOff => WARN,
        Condition::Waiting | Condition::Stopped => STRONG,
    };
    let word = component.word();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    writeln!(
        out,
        "{:<width$} {:>8}  {style}{word:<12}{style:#} {:>5}  {:>8}  {:>8}",
        component.name,
        or_dash(component.pid.map(|pid| pid.to_string())),
        or_dash(component.port.map(|port| port.to_string())),
        or_dash(component.uptime_seconds.map(span)),
        component.restarts,
    )
}

/// Formats a duration in its two largest units.
fn span(seconds: u64) -> String {
    let whole = seconds;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => format!("{minutes}m{}s", whole % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_span_shows_its_two_largest_units() {
        let spans = [0, 59, 61, 3661, 90_000].map(span);
        assert_eq!(spans, ["0s", "59s", "1m1s", "1h1m", "1d1h"]);
    }
}
