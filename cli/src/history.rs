//! `trishanku log` and `trishanku diff`: what gitcd tells of a branch, with the names that kubectl has for things.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use trishanku::headless::DESK;
use trishanku::kinds::{Kind, Kinds};
use trishanku::plane::assets::find_gitcd;
use trishanku::plane::state::{Form, Store};
use trishanku::plane::{Home, State};

/// What `kubectl` takes if nobody says it.
const NAMESPACE: &str = "default";
/// What all keys of a kube-apiserver begin with.
const PREFIX: &str = "/registry";
/// The definitions of kinds.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";
/// The state of now as a difference from nothing.
const EVER: &str = "--since=nothing";
/// So many objects are named to who looked for another one.
const NAMED: usize = 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku log deploy/nginx -n shop
  trishanku log -p cm/prices -n shop        which fields changed
  trishanku log --since=10m                 everything that happened at the desk
  trishanku --heaven kube-scheduler log pod web-0

Kinds are called as for kubectl: in short (cm), by one (configmap) or many, with their group (deployments.apps). Those of CustomResourceDefinitions
are found in the store. No server needs to run.")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Log {
    /// The object: KIND/NAME, or KIND NAME; all commits of the branch if there is none
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    object: Vec<String>,
    /// Its namespace [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Show which fields changed, and what merges had to decide
    #[arg(long, short, requires = "object")]
    patch: bool,
    /// None from before this: how long ago (10m), a time, or a revision
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// So many versions or commits
    #[arg(long, value_name = "N", default_value = "40")]
    limit: std::num::NonZeroUsize,
    /// Do not cut long values
    #[arg(long)]
    whole: bool,
    /// Print the values of Secrets, which are hidden otherwise
    #[arg(long)]
    show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku diff --since=10m -n shop
  trishanku diff --since=10m deploy/nginx -n shop
  trishanku diff --since=1h --until=30m deploy -A --name-only

Ends with code 0 if nothing differs, 1 if something does, 2 if the status is unknown.")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Diff {
    /// Objects: KIND/NAME, KIND NAME, or KIND for all of them; everything if there is none
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    /// Their namespace; without objects everything that is in it [default: default, for objects]
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// In all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// From when: how long ago (10m), a time, or a revision
    #[arg(long, value_name = "WHEN")]
    since: String,
    /// Until when
    #[arg(long, value_name = "WHEN", default_value = "now")]
    until: String,
    /// Only the keys
    #[arg(long)]
    name_only: bool,
    /// Do not cut long values
    #[arg(long)]
    whole: bool,
    /// Print the values of Secrets, which are hidden otherwise
    #[arg(long)]
    show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Replaces this process by `gitcd log`.
///
/// # Errors
/// Why that is not done.
pub(crate) fn become_log(home: &Home, heaven: Option<&str>, options: &Log) -> anyhow::Result<()> {
    let branch = Branch::find(home, heaven)?;
    let mut command = branch.command("log");
    command.arg(format!("--limit={}", options.limit));
    command.args(options.since.iter().map(|since| format!("--since={since}")));
    let flags = [
        ("--patch", options.patch),
        ("--whole", options.whole),
        ("--show-secrets", options.show_secrets),
        ("--json", options.json),
    ];
    command.args(flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag));
    if !options.object.is_empty() {
        let namespace = options.namespace.as_deref().unwrap_or(NAMESPACE);
        let found = branch.objects(&options.object)?;
        let [Object { kind, name: Some(name) }] = &found[..] else {
            bail!("name one object, such as {}/NAME", options.object.join("/"));
        };
        let key = kind.key(Some(namespace), name);
        branch.has_known(&key, kind, namespace, name)?;
        command.args(["--", &key]);
    } else if let Some(namespace) = &options.namespace {
        bail!(
            "a log is of one object, or of the whole branch: `trishanku diff --since=10m -n {namespace}` shows what changed in a namespace"
        );
    }
    Err(branch.become_gitcd(command))
}

/// Replaces this process by `gitcd diff`.
///
/// # Errors
/// Why that is not done.
pub(crate) fn become_diff(home: &Home, heaven: Option<&str>, options: &Diff) -> anyhow::Result<()> {
    let branch = Branch::find(home, heaven)?;
    let mut command = branch.command("diff");
    command.args([format!("--since={}", options.since), format!("--until={}", options.until)]);
    let flags = [
        ("--name-only", options.name_only),
        ("--whole", options.whole),
        ("--show-secrets", options.show_secrets),
        ("--json", options.json),
    ];
    command.args(flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag)).arg("--");
    match (&options.objects[..], &options.namespace) {
        ([], None) => {}
        ([], Some(namespace)) => {
            let kinds = branch.all_kinds()?;
            command.args(kinds.namespaced().map(|kind| kind.below(Some(namespace))));
            command.arg(format!("namespaces/{namespace}"));
        }
        (objects, namespace) => {
            let namespace = namespace.as_deref().unwrap_or(NAMESPACE);
            for Object { kind, name } in branch.objects(objects)? {
                command.arg(match name {
                    Some(name) if options.all_namespaces && kind.is_namespaced => {
                        bail!("{}/{name} is in one namespace: say in which with -n in place of -A", kind.singular)
                    }
                    Some(name) => kind.key(Some(namespace), &name),
                    None => kind.below((!options.all_namespaces).then_some(namespace)),
                });
            }
        }
    }
    Err(branch.become_gitcd(command))
}

/// What somebody has named: an object, or all of a kind.
struct Object {
    kind: Kind,
    name: Option<String>,
}

/// A branch that gitcd can tell of.
struct Branch {
    gitcd: PathBuf,
    repository: PathBuf,
    data: String,
    metadata: String,
}

impl Branch {
    /// That of a heaven; unless one is named, of the desk, or of the first one that has a kube-apiserver.
    fn find(home: &Home, heaven: Option<&str>) -> anyhow::Result<Self> {
        let explicit = std::env::var_os("TRISHANKU_GITCD").map(PathBuf::from);
        let gitcd = find_gitcd(explicit.as_deref())?;
        let state = State::load(&home.state_file())?;
        let is_first = |name: &str| state.heavens.iter().find(|heaven| heaven.name == name);
        let record = match heaven {
            Some(name) => Some(crate::kubectl::heaven(&state, name)?),
            None => is_first(DESK)
                .or_else(|| state.heavens.iter().find(|heaven| heaven.kubeconfig.is_some()))
                .or(state.heavens.first())
                .cloned(),
        };
        let branch = match record {
            Some(record) => {
                let short = record.branch.strip_prefix("refs/heads/").unwrap_or(&record.branch);
                let metadata = record.metadata.unwrap_or_else(|| format!("refs/gitcd/metadata/{short}"));
                Self { gitcd, repository: record.repository, data: record.branch, metadata }
            }
            None if state.settings.store == Store::Etcd && state.settings.form == Form::Central => {
                bail!("this control plane is on etcd, which keeps no history")
            }
            None => Self {
                gitcd,
                repository: home.repository(),
                data: "refs/heads/main".to_owned(),
                metadata: "refs/gitcd/metadata/main".to_owned(),
            },
        };
        if !branch.repository.exists() {
            bail!("there is no repository in {} yet", home.dir().display());
        }
        Ok(branch)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.gitcd);
        command.arg(name).arg("--repo").arg(&self.repository);
        command.arg(format!("--data-reference-names=default={}", self.data));
        command.arg(format!("--metadata-reference-names=default={}", self.metadata));
        command.arg(format!("--key-prefixes=default={PREFIX}"));
        command
    }

    fn become_gitcd(&self, mut command: Command) -> anyhow::Error {
        let error = command.exec();
        anyhow::anyhow!("cannot start {}: {error}", self.gitcd.display())
    }

    fn output(&self, command: &mut Command) -> anyhow::Result<Output> {
        command.output().with_context(|| format!("cannot start {}", self.gitcd.display()))
    }

    /// What gitcd prints as JSON.
    fn told(&self, command: &mut Command) -> anyhow::Result<Value> {
        let output = self.output(command)?;
        // A difference is told with code 1.
        if !matches!(output.status.code(), Some(0 | 1)) || output.stdout.is_empty() {
            bail!("{}", complaint(&output));
        }
        serde_json::from_slice(&output.stdout).context("gitcd prints what is no JSON")
    }

    /// The kinds of Kubernetes, and those that the store defines.
    fn all_kinds(&self) -> anyhow::Result<Kinds> {
        let definitions =
            self.told(self.command("diff").args([EVER, "--json", "--show-secrets", "--", DEFINITIONS]))?;
        let keys = definitions["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let fields = keys.iter().filter_map(|key| key["fields"].as_array()).flatten();
        let specs = fields.filter(|field| field["path"] == "spec").map(|field| &field["to"]);
        Ok(Kinds::builtin().with_definitions(specs))
    }

    /// What words name: `KIND/NAME` each, or a `KIND` with names behind it.
    fn objects(&self, words: &[String]) -> anyhow::Result<Vec<Object>> {
        let builtin = Kinds::builtin();
        let mut all = None;
        let mut kind = |name: &str| -> anyhow::Result<Kind> {
            if let Ok(kind) = builtin.find(name) {
                return Ok(kind.clone());
            }
            let all = match &all {
                Some(all) => all,
                None => all.insert(self.all_kinds()?),
            };
            Ok(all.find(name)?.clone())
        };
        let mut found = Vec::new();
        match words {
            [first, names @ ..] if !first.contains('/') => {
                if let Some(name) = names.iter().find(|name| name.contains('/')) {
                    bail!("{first:?} is a kind, so names of its objects follow, and {name:?} is none");
                }
                let kind = kind(first)?;
                found.extend(names.iter().map(|name| Object { kind: kind.clone(), name: Some(name.clone()) }));
                if names.is_empty() {
                    found.push(Object { kind, name: None });
                }
            }
            words => {
                for word in words {
                    let Some((of, name)) = word.split_once('/').filter(|(of, name)| !of.is_empty() && !name.is_empty())
                    else {
                        bail!("{word:?} is no object: name each as KIND/NAME");
                    };
                    found.push(Object { kind: kind(of)?, name: Some(name.to_owned()) });
                }
            }
        }
        if found.iter().any(|object| object.kind.plural == "events") {
            bail!("events are never committed, so they have no history");
        }
        Ok(found)
    }

    /// An error, with what there is, if there never was such an object.
    fn has_known(&self, key: &str, kind: &Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        let output = self.output(self.command("log").args(["--json", "--limit=1", "--", key]))?;
        let said = complaint(&output);
        if output.status.success() {
            return Ok(());
        }
        if !said.contains("was never in this branch") {
            bail!("{said}");
        }
        let place = if kind.is_namespaced { format!(" in namespace {namespace:?}") } else { String::new() };
        let below = kind.below(Some(namespace));
        let mut listing = self.command("at");
        let there = self.told(listing.args(["now", "list", "--json", &below]))?;
        let start = format!("{PREFIX}/{below}");
        let keys = there["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<_> = keys.iter().filter_map(|key| key.as_str()?.strip_prefix(&start)).collect();
        let rest = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (singular, plural) = (&kind.singular, &kind.plural);
        if names.is_empty() {
            bail!("there is and was no {singular} {name:?}{place}; there are no {plural}");
        }
        let names = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        bail!("there is and was no {singular} {name:?}{place}; there are {names}{rest}")
    }
}

/// What gitcd said was wrong.
fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    said.strip_prefix("gitcd: ").or(said.strip_prefix("Error: ")).unwrap_or(said).to_owned()
}
