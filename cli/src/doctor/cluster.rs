//! The supervisor and the components, as `trishanku status` reads them.

use std::io;
use std::path::{Path, PathBuf};

use trishanku::plane::Home;
use trishanku::plane::registry::Entry;
use trishanku::plane::state::Condition;
use trishanku::status::{ComponentReport, Health, Unlistable};
use trishanku_stdio::text::quoted;

use super::check::{Area, Check};

/// A component that was restarted more often than by accident.
const RESTARTS: u32 = 3;

/// Checks for processes whose folder was removed, moved away or replaced.
pub(super) fn leftovers(home: &Home, program: &str, entries: Option<io::Result<Vec<Entry>>>) -> Vec<Check> {
    const NAME: &str = "leftovers";
    match entries {
        None => {
            vec![Check::skipped(Area::Cluster, NAME, "there is no registry: neither XDG_STATE_HOME nor HOME is set")]
        }
        Some(Err(error)) => {
            let remedy = "make $XDG_STATE_HOME/trishanku/planes readable";
            vec![Check::warning(Area::Cluster, NAME, format!("the registry cannot be read: {error}"), remedy)]
        }
        Some(Ok(entries)) => {
            let strays = entries.iter().filter(|entry| !entry.is_in_place() && entry.is_running());
            let strays: Vec<&PathBuf> = strays.map(|entry| &entry.dir).collect();
            leftovers_of(home.dir(), program, &strays)
        }
    }
}

fn leftovers_of(own: &Path, program: &str, strays: &[&PathBuf]) -> Vec<Check> {
    const NAME: &str = "leftovers";
    if strays.is_empty() {
        return vec![Check::ok(Area::Cluster, NAME, "no processes of removed folders")];
    }
    let of = |dir: &&PathBuf| {
        let detail = "the folder was removed, moved away or replaced, and its processes still run";
        let check = if dir.as_path() == own {
            Check::failure(Area::Cluster, NAME, detail, format!("`{program} down` stops them"))
        } else {
            let remedy = format!("`trishanku --dir {} down` stops them", quoted(dir));
            Check::warning(Area::Cluster, NAME, detail, remedy)
        };
        check.about(dir.display().to_string())
    };
    strays.iter().map(of).collect()
}

pub(super) fn supervisor(health: Health, pid: Option<u32>, program: &str) -> Check {
    const NAME: &str = "supervisor";
    match (health, pid) {
        (Health::Orphaned, _) => {
            let detail = "components run without the supervisor: nothing restarts them or renews certificates";
            let remedy = format!("`{program} up` starts everything again, `{program} down` stops it");
            Check::failure(Area::Cluster, NAME, detail, remedy)
        }
        (Health::Stopped, _) | (_, None) => Check::skipped(Area::Cluster, NAME, "the control plane is stopped"),
        (health, Some(pid)) => Check::ok(Area::Cluster, NAME, format!("{}, process {pid}", health.word())),
    }
}

pub(super) fn components(components: &[ComponentReport], health: Health, program: &str) -> Vec<Check> {
    const NAME: &str = "components";
    if matches!(health, Health::Stopped | Health::Orphaned | Health::Stopping) {
        return vec![Check::skipped(Area::Cluster, NAME, format!("the control plane is {}", health.word()))];
    }
    let bad: Vec<Check> = components.iter().filter_map(|component| of_component(component, health, program)).collect();
    if bad.is_empty() {
        let waiting = components.iter().filter(|component| component.condition == Condition::Waiting).count();
        let waiting = if waiting > 0 { format!(", {waiting} of them wait for their turn") } else { String::new() };
        return vec![Check::ok(Area::Cluster, NAME, format!("{} components run{waiting}", components.len()))];
    }
    bad
}

fn of_component(component: &ComponentReport, health: Health, program: &str) -> Option<Check> {
    const NAME: &str = "components";
    let logs = format!("see `{program} logs {}`", component.name);
    let restarts = component.restarts;
    let check = match component.condition {
        Condition::Waiting => return None,
        Condition::Ready if restarts < RESTARTS => return None,
        Condition::Ready => {
            let detail = format!("ready, but it was restarted {restarts} times");
            Check::warning(Area::Cluster, NAME, detail, format!("{logs}, and --previous"))
        }
        // It is not late yet.
        Condition::Starting | Condition::Stopped if health == Health::Starting => return None,
        Condition::Starting | Condition::BackingOff | Condition::Stopped => {
            // The end of its log may have secrets.
            let cause = component.failure.as_ref().map(|failure| format!(": {}", failure.cause)).unwrap_or_default();
            let remedy = component.failure.as_ref().and_then(|failure| failure.remedy.clone());
            let detail = format!("not ready ({}){cause}", component.word());
            Check::failure(Area::Cluster, NAME, detail, remedy.unwrap_or(logs))
        }
    };
    Some(check.about(&component.name))
}

pub(super) fn kinds(unlistable: &[Unlistable]) -> Vec<Check> {
    const NAME: &str = "kinds";
    let of = |kind: &Unlistable| {
        let heaven = kind.heaven.as_ref().map_or_else(String::new, |heaven| format!("{heaven}/"));
        let after =
            kind.after.as_ref().map_or_else(String::new, |after| format!("; the object after {after} is unreadable"));
        let detail = format!("cannot list {}: {}{after}", kind.resource, kind.reason);
        let remedy = "correct or delete the object's file on the branch, and push the change";
        Check::failure(Area::Cluster, NAME, detail, remedy).about(format!("{heaven}kube-apiserver"))
    };
    unlistable.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn component(condition: Condition, restarts: u32) -> ComponentReport {
        ComponentReport {
            name: "desk/gitcd".into(),
            pid: None,
            condition,
            port: None,
            uptime_seconds: None,
            restarts,
            failure: None,
        }
    }

    fn of(condition: Condition, restarts: u32, health: Health) -> Check {
        components(&[component(condition, restarts)], health, "trishanku").remove(0)
    }

    #[test]
    fn components_that_are_not_ready_fail_and_those_that_keep_restarting_warn() {
        for (condition, restarts, health, status) in [
            (Condition::Ready, 2, Health::Ready, Status::Ok),
            (Condition::Ready, 3, Health::Ready, Status::Warning),
            (Condition::Waiting, 9, Health::StandingBy, Status::Ok),
            (Condition::BackingOff, 1, Health::Degraded, Status::Failure),
            (Condition::Stopped, 0, Health::Degraded, Status::Failure),
            (Condition::Starting, 0, Health::Starting, Status::Ok),
            (Condition::BackingOff, 1, Health::Starting, Status::Failure),
            (Condition::Stopped, 0, Health::Stopped, Status::Skipped),
            (Condition::Ready, 0, Health::Orphaned, Status::Skipped),
        ] {
            let check = of(condition, restarts, health);
            assert_eq!(check.status, status, "{check:?}");
        }
        let failing = of(Condition::BackingOff, 4, Health::Degraded);
        assert_eq!(failing.object.as_deref(), Some("desk/gitcd"));
        assert_eq!(failing.remedy.as_deref(), Some("see `trishanku logs desk/gitcd`"));
    }

    #[test]
    fn a_supervisor_that_is_gone_fails_unless_everything_is_stopped() {
        let of = |health, pid| supervisor(health, pid, "trishanku").status;
        assert_eq!(of(Health::Orphaned, None), Status::Failure);
        assert_eq!(of(Health::Stopped, None), Status::Skipped);
        assert_eq!(of(Health::Degraded, Some(7)), Status::Ok);
    }

    #[test]
    fn processes_of_a_folder_that_is_gone_are_named_with_the_command_that_stops_them() {
        let own = Path::new("/planes/a");
        assert_eq!(leftovers_of(own, "trishanku", &[])[0].status, Status::Ok);
        let (here, there) = (PathBuf::from("/planes/a"), PathBuf::from("/planes/b c"));
        let found = leftovers_of(own, "trishanku --dir /planes/a", &[&here, &there]);
        assert_eq!([found[0].status, found[1].status], [Status::Failure, Status::Warning]);
        assert!(found[0].remedy.as_ref().unwrap().contains("`trishanku --dir /planes/a down`"));
        assert!(found[1].remedy.as_ref().unwrap().contains("--dir '/planes/b c' down"));
    }

    #[test]
    fn a_kind_that_cannot_be_listed_fails() {
        let kind = Unlistable {
            heaven: Some("desk".into()),
            resource: "secrets".into(),
            reason: "decoding failed".into(),
            after: Some("a/b".into()),
        };
        let check = kinds(&[kind]).remove(0);
        assert_eq!((check.status, check.object.as_deref()), (Status::Failure, Some("desk/kube-apiserver")));
        assert!(check.detail.contains("cannot list secrets: decoding failed; the object after a/b"), "{check:?}");
        assert!(kinds(&[]).is_empty());
    }
}
