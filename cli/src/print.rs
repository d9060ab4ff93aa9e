//! What `status`, `down` and `new` print.

use std::io::Write;

use trishanku::down::Down;
use trishanku::plane::state::Condition;
use trishanku::scaffold::Name;
use trishanku::status::{ComponentReport, Health, Report};

use crate::console::{BAD, GOOD, STRONG, WARN};

/// A failed command, with all causes, on standard error.
pub(crate) fn error(error: &anyhow::Error) {
    anstream::eprintln!("{BAD}error:{BAD:#} {error:#}");
}

pub(crate) fn down(outcome: &Down) {
    match outcome {
        Down::NotRunning => anstream::println!("Nothing was running"),
        Down::Stopped => anstream::println!("Stopped; the data stays"),
        Down::EndedLeftovers(leftovers) => {
            for left in leftovers {
                anstream::println!("{WARN}ended{WARN:#} {} (process {}): its supervisor was gone", left.name, left.pid);
            }
        }
    }
}

/// What there is now, and what to do with it.
pub(crate) fn new_controller(name: &Name) {
    let (kind, name) = (name.kind(), name.as_str());
    anstream::println!("{GOOD}Made{GOOD:#} {STRONG}{name}{STRONG:#}, a controller of {kind} objects");
    anstream::println!("\n  cd {name}");
    anstream::println!("  cargo test                 # on a real kube-apiserver");
    anstream::println!("  kubectl apply -k deploy    # to your cluster; README.md says more");
}

pub(crate) fn status(report: &Report, json: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    let (style, word) = match report.health {
        Health::Ready => (GOOD, "ready"),
        Health::Starting => (WARN, "starting"),
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
    writeln!(
        out,
        "\n{STRONG}{:<24} {:>8}  {:<12} {:>5}  {:>8}  {:>8}{STRONG:#}",
        "COMPONENT", "PID", "STATE", "PORT", "UPTIME", "RESTARTS"
    )?;
    for component in &report.components {
        row(out, component)?;
    }
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

fn row(out: &mut impl Write, component: &ComponentReport) -> std::io::Result<()> {
    let (style, word) = match component.condition {
        Condition::Ready => (GOOD, "ready"),
        Condition::Starting => (WARN, "starting"),
        Condition::BackingOff => (WARN, "restarting"),
        Condition::Stopped => (STRONG, "stopped"),
    };
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    writeln!(
        out,
        "{:<24} {:>8}  {style}{word:<12}{style:#} {:>5}  {:>8}  {:>8}",
        component.name,
        or_dash(component.pid.map(|pid| pid.to_string())),
        or_dash(component.port.map(|port| port.to_string())),
        or_dash(component.uptime_seconds.map(span)),
        component.restarts,
    )
}

/// A span of time in its two largest units.
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
