//! `gitcd blame`.

use std::io::{self, Write};

use gitcd_history::Revisions;
use gitcd_history::blame::{Blame, BlameError, BlamedField, Options, Origin, Selector, on_one_line};
use gitcd_history::when::When;
use gitcd_merge::secrecy::HIDDEN;
use gitcd_merge::value::{Syntax, Value};
use serde_json::json;

use super::log::ago;
use super::print::{self, CHANGED, FAINT, STRONG, plain};
use super::{Place, Printing, print_json, text_or_base64};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// When: a revision, how long ago (10m), a time, or a commit
    #[arg(long, value_parser = When::parse, default_value = "now", value_name = "WHEN")]
    at: When,
    /// Only this field and those below it: spec.template, `data["a.b"]`, `spec.containers[name=web].image`
    #[arg(long, value_name = "PATH")]
    field: Option<Selector>,
    #[command(flatten)]
    printing: Printing,
    /// Do not truncate long values and names
    #[arg(long)]
    whole: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The key, with or without the branch's prefix
    key: String,
}

const EXAMPLES: &str = "Examples:
  gitcd blame --repo=store.git deployments/shop/web
  gitcd blame --repo=store.git --field=spec.template deployments/shop/web
  gitcd blame --repo=store.git --at=4711 --json configmaps/shop/prices

Each line has the commit that last set the field to this value, its revision on this branch, the branch that it comes
from, and who made it. A commit marked with ^ is the last one of a shallow clone. `metadata.managedFields` is shown only
with --field=metadata.managedFields.";

pub(in super::super) fn run(args: &Args) -> anyhow::Result<()> {
    let history = args.place.open()?;
    let moment = history.at(args.at)?;
    let key = history.whole_key(&args.key)?;
    let options = Options {
        field: args.field.clone(),
        show_secrets: args.printing.show_secrets,
        secret_kinds: args.printing.secret_kinds.clone(),
    };
    let blame = match history.blame(&moment, &key, &options) {
        Ok(blame) => blame,
        Err(BlameError::NoKey { revision }) => {
            let (name, neighbours) = (&args.key, plain(&history.neighbours(&moment, &key)?.to_string()));
            anyhow::bail!(
                "there is no {name:?} at revision {revision}: {neighbours}; `gitcd log {name}` shows when it existed"
            );
        }
        Err(BlameError::NoField { selector, near }) => {
            anyhow::bail!(
                "{:?} has no field {} at revision {}: {}",
                args.key,
                plain(&selector),
                moment.revision,
                plain(&near)
            )
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        let fields: Vec<_> = blame.fields.iter().map(|field| to_json(field, &blame.origins[field.origin])).collect();
        return print_json(&json!({
            "key": text_or_base64(&key), "at": moment.revision, "commit": moment.commit.oid.to_string(), "fields": fields,
        }));
    }
    Ok(lines(&mut trishanku_stdio::stdout(), &blame, args.whole)?)
}

const HEAD: [&str; 5] = ["COMMIT", "REVISION", "BRANCH", "WHEN", "BY"];

fn lines(out: &mut impl Write, blame: &Blame, whole: bool) -> io::Result<()> {
    let columns: Vec<[String; 5]> = blame.origins.iter().map(|origin| columns(origin, whole)).collect();
    let width = |at: usize| {
        let cells = columns.iter().map(|row| row[at].chars().count());
        cells.chain([HEAD[at].len()]).max().unwrap_or_default()
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let joined = |cells: [&str; 5]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ")
    };
    writeln!(out, "{STRONG}{}  VALUE{STRONG:#}", joined(HEAD))?;
    let mut last = None;
    for line in &blame.lines {
        let label = plain(&line.label);
        let Some(number) = line.field else {
            writeln!(out, "{}  {label}", joined([""; 5]))?;
            continue;
        };
        let BlamedField { value, origin, .. } = &blame.fields[number];
        // The columns of a commit stand out where it first appears.
        let style = if last.replace(*origin) == Some(*origin) { FAINT } else { CHANGED };
        let value = match value {
            Some(value) => print::short(&on_one_line(value), whole),
            None => HIDDEN.to_owned(),
        };
        let space = if label.is_empty() { "" } else { " " };
        writeln!(
            out,
            "{style}{}{style:#}  {label}{space}{value}",
            joined(columns[*origin].each_ref().map(String::as_str))
        )?;
    }
    Ok(())
}

/// Longer branches and authors are truncated, unless whole names are requested: their columns are as wide as the longest one.
const NAME_CHARS: usize = 40;

fn name(text: &str, whole: bool) -> String {
    let text = plain(text);
    if whole || text.chars().count() <= NAME_CHARS {
        return text;
    }
    text.chars().take(NAME_CHARS - 1).chain(['…']).collect()
}

fn columns(origin: &Origin, whole: bool) -> [String; 5] {
    let id = origin.commit.oid.to_string();
    [
        if origin.is_boundary { format!("^{}", &id[..9]) } else { id[..10].to_owned() },
        print::revisions(origin.revisions),
        name(origin.branch.as_deref().unwrap_or("-"), whole),
        ago(origin.commit.time),
        name(&origin.who.text(super::super::COMMITTER_NAME), whole),
    ]
}

fn to_json(field: &BlamedField, origin: &Origin) -> serde_json::Value {
    let Origin { commit, revisions, who, branch, is_boundary, .. } = origin;
    let value = |value: &Value| serde_json::from_slice(&value.write(Syntax::Json)).unwrap_or(serde_json::Value::Null);
    let revision = revisions.filter(|own| own.first == own.last).map(|own| own.last);
    json!({
        "path": field.path.to_string(),
        "value": field.value.as_ref().map_or_else(|| json!(HIDDEN), value), "hidden": field.value.is_none(),
        "commit": commit.oid.to_string(), "boundary": is_boundary, "revision": revision,
        "revisions": revisions.map(|Revisions { first, last }| json!({ "first": first, "last": last })),
        "time": commit.time, "branch": branch, "by": commit.by(), "actors": who.actors,
        "managers": who.managers, "author": who.author,
        "committer": who.committer.as_ref().unwrap_or(&who.author),
        "also": field.also.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_so_that_one_of_them_does_not_widen_every_line() {
        let long = "é".repeat(NAME_CHARS + 1);
        assert_eq!(name(&long, true), long);
        assert_eq!(name(&long, false), "é".repeat(NAME_CHARS - 1) + "…");
        assert_eq!(name(&long[2..], false), long[2..]);
        assert_eq!(name("a\u{1b}b", false), "a\u{fffd}b");
    }
}
