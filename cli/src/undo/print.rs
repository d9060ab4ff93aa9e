//! Prints plans and outcomes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use gitcd::history::fields::Field;
use serde_json::{Value, json};
use trishanku_stdio::text::{MAX_CHARS, cut, plain};
use trishanku_undo::{Action, Plan, Step};

use super::apply::{Done, Outcome};
use super::dependents;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default();
const STRONG: Style = Style::new().bold();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const FAINT: Style = Style::new().dimmed();
/// Most objects that are left to controllers, or unchanged, that are printed.
const SHOWN: usize = 5;

/// Prints a plan: each object with its fields. `rejected` has what kube-apiserver would reject, by key.
pub(super) fn plan(
    out: &mut impl Write,
    plan: &Plan,
    rejected: &BTreeMap<String, String>,
    whole: bool,
) -> io::Result<()> {
    for step in plan.requests() {
        let (sign, style) = match step.action {
            Action::Create { .. } => ('+', ADDED),
            Action::Delete { .. } => ('-', REMOVED),
            _ => ('~', WARN),
        };
        writeln!(out, "{style}{sign} {}{style:#}", plain(&step.object.to_string()))?;
        for field in &step.fields {
            line(out, field, whole)?;
        }
        for stays in &step.stays {
            writeln!(out, "    {FAINT}stays, edited later:{FAINT:#} {}", plain(stays))?;
        }
        for note in step.notes.iter().chain(&dependents::described(step)) {
            writeln!(out, "    {FAINT}note:{FAINT:#} {}", plain(note))?;
        }
        if let Some(reason) = rejected.get(&step.object.key) {
            writeln!(out, "    {BAD}would be rejected:{BAD:#} {}", plain(reason))?;
        }
    }
    for step in plan.blocked() {
        let Action::Blocked(reason) = &step.action else { continue };
        writeln!(out, "{BAD}! {}{BAD:#}: {}", plain(&step.object.to_string()), plain(reason))?;
    }
    others(out, plan, "unchanged")?;
    others(out, plan, "left")?;
    writeln!(out, "{STRONG}{}{STRONG:#}", summary(plan))
}

/// Prints objects that a plan does not change, with the reasons.
fn others(out: &mut impl Write, plan: &Plan, word: &str) -> io::Result<()> {
    let steps: Vec<&Step> = plan.steps.iter().filter(|step| step.word() == word).collect();
    for step in steps.iter().take(SHOWN) {
        let (Action::Nothing(reason) | Action::Left(reason)) = &step.action else { continue };
        writeln!(out, "{FAINT}= {}: {}{FAINT:#}", plain(&step.object.to_string()), plain(reason))?;
        for stays in &step.stays {
            writeln!(out, "    {FAINT}stays, edited later:{FAINT:#} {}", plain(stays))?;
        }
    }
    match steps.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "{FAINT}= {more} more {word}; --json has all{FAINT:#}"),
    }
}

fn count(plan: &Plan, word: &str) -> usize {
    plan.steps.iter().filter(|step| step.word() == word).count()
}

/// Returns the numbers of a plan.
pub(super) fn summary(plan: &Plan) -> String {
    let of = |word| count(plan, word);
    format!(
        "{} to create, {} to update, {} to delete; {} unchanged, {} left to controllers, {} impossible",
        of("create"),
        of("update"),
        of("delete"),
        of("unchanged"),
        of("left"),
        of("blocked")
    )
}

fn line(out: &mut impl Write, Field { path, from, to }: &Field, whole: bool) -> io::Result<()> {
    let name = if path.is_empty() { "(value)".to_owned() } else { plain(path) };
    let short = |text: &String| plain(&if whole { text.clone() } else { cut(text) });
    match (from.as_ref().map(short), to.as_ref().map(short)) {
        (Some(from), Some(to)) if from.len() + to.len() <= MAX_CHARS => {
            writeln!(out, "    {WARN}~{WARN:#} {name}: {REMOVED}{from}{REMOVED:#} → {ADDED}{to}{ADDED:#}")
        }
        (from, to) => {
            for (sign, style, text) in [('-', REMOVED, from), ('+', ADDED, to)] {
                if let Some(text) = text {
                    writeln!(out, "    {style}{sign} {name}: {text}{style:#}")?;
                }
            }
            Ok(())
        }
    }
}

/// Returns the past tense of what was done.
pub(super) fn word(done: Done) -> &'static str {
    match done {
        Done::Created => "created",
        Done::Updated => "updated",
        Done::Recreated => "recreated",
        Done::Deleted => "deleted",
        Done::Unchanged => "unchanged",
    }
}

/// Prints the outcome of a step.
pub(super) fn outcome(out: &mut impl Write, Outcome { object, result, notes, .. }: &Outcome) -> io::Result<()> {
    let object = plain(&object.to_string());
    match result {
        Ok(done) => writeln!(out, "{GOOD}{}{GOOD:#} {object}", word(*done))?,
        Err(reason) => writeln!(out, "{BAD}failed{BAD:#} {object}: {}", plain(reason))?,
    }
    notes.iter().try_for_each(|note| writeln!(out, "    {FAINT}note:{FAINT:#} {}", plain(note)))
}

/// Converts a plan to JSON, with the outcomes of its steps.
pub(super) fn to_json(plan: &Plan, rejected: &BTreeMap<String, String>, outcomes: &[Outcome]) -> Value {
    let step = |step: &Step| {
        let field = |field: &Field| json!({ "path": field.path, "from": field.from, "to": field.to });
        let mut json = json!({
            "action": step.word(), "object": step.object, "fields": step.fields.iter().map(field).collect::<Vec<_>>(),
            "stays": step.stays, "notes": step.notes, "dependents": step.dependents,
        });
        if let Action::Nothing(reason) | Action::Left(reason) | Action::Blocked(reason) = &step.action {
            json["reason"] = reason.as_str().into();
        }
        if let Some(reason) = rejected.get(&step.object.key) {
            json["rejected"] = reason.as_str().into();
        }
        if let Some(outcome) = outcomes.iter().find(|outcome| outcome.object.key == step.object.key) {
            match &outcome.result {
                Ok(done) => json["done"] = word(*done).into(),
                Err(reason) => json["error"] = reason.as_str().into(),
            }
            let notes = json["notes"].as_array_mut().expect("the notes are a list");
            notes.extend(outcome.notes.iter().map(|note| note.as_str().into()));
        }
        json
    };
    json!(plan.steps.iter().map(step).collect::<Vec<_>>())
}
