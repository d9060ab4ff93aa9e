//! `trishanku log`, `trishanku blame` and `trishanku diff`: run gitcd on a branch, with kubectl's names for objects.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use trishanku::complaint;
use trishanku::kinds::{Kind, Kinds};
use trishanku::plane::Home;
use trishanku::plane::assets::find_gitcd;

use crate::location::{Location, Own};
use crate::objects::{self, NAMESPACE, Object};

/// The prefix of all keys of a kube-apiserver.
const PREFIX: &str = "/registry";
/// Key prefix of `CustomResourceDefinitions`.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";
/// Shows the current state as a difference from nothing.
const EVER: &str = "--since=nothing";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku log deploy/nginx -n shop
  trishanku log -p cm/prices -n shop        which fields changed
  trishanku log --since=10m                 everything that happened at the desk
  trishanku --heaven kube-scheduler log pod web-0
  trishanku log deploy/web --repo=store.git       a control plane of your own

Kinds are named as in kubectl: short (cm), singular (configmap), plural, or with their group (deployments.apps). CustomResourceDefinitions
are read from the store. No server needs to run.")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Log {
    /// Object: KIND/NAME, or KIND NAME [default: all commits of the branch]
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    object: Vec<String>,
    /// Namespace of the object [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Show which fields changed, and how merges decided
    #[arg(long, short, requires = "object")]
    patch: bool,
    /// Only changes since this moment: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Show at most N versions or commits
    #[arg(long, value_name = "N", default_value = "40")]
    limit: std::num::NonZeroUsize,
    /// Do not shorten long values
    #[arg(long)]
    whole: bool,
    /// Print the values of Secrets, which are hidden by default
    #[arg(long)]
    show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    own: Own,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku blame deploy/nginx -n shop
  trishanku blame deploy/nginx -n shop --field=spec.template
  trishanku blame cm/prices --at=10m --field='data[\"tea.green\"]'

Each line has the commit that last set the field to this value, its revision, the branch that it comes from, and who made it.")]
pub(crate) struct Blame {
    /// Object: KIND/NAME, or KIND NAME
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    object: Vec<String>,
    /// Namespace of the object [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only this field and those below it, such as spec.template or 'spec.containers[name=web].image'
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
    /// The object at this moment: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN", default_value = "now")]
    at: String,
    /// Do not shorten long values
    #[arg(long)]
    whole: bool,
    /// Print the values of Secrets, which are hidden by default
    #[arg(long)]
    show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    own: Own,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku diff --since=10m -n shop
  trishanku diff --since=10m deploy/nginx -n shop
  trishanku diff --since=1h --until=30m deploy -A --name-only

Exits with 0 if nothing differs, 1 if something does, 2 if the comparison failed.")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(crate) struct Diff {
    /// Objects: KIND/NAME, KIND NAME, or KIND for all of them [default: everything]
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    /// Namespace of the objects; without objects, everything in it [default: default, for objects]
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Start: how long ago (10m), a time, a revision, or a commit
    #[arg(long, value_name = "WHEN")]
    since: String,
    /// End, in the same form
    #[arg(long, value_name = "WHEN", default_value = "now")]
    until: String,
    /// Print only the keys
    #[arg(long)]
    name_only: bool,
    /// Do not shorten long values
    #[arg(long)]
    whole: bool,
    /// Print the values of Secrets, which are hidden by default
    #[arg(long)]
    show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    own: Own,
}

/// Replaces this process with `gitcd log`.
///
/// # Errors
/// The reason why that is impossible.
pub(crate) fn become_log(home: &Home, heaven: Option<&str>, options: &Log) -> anyhow::Result<()> {
    let branch = Branch::find(home, heaven, &options.own)?;
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
        command.args(["--", &branch.one_object(&options.object, options.namespace.as_deref())?]);
    } else if let Some(namespace) = &options.namespace {
        bail!(
            "a log is of one object, or of the whole branch: `trishanku diff --since=10m -n {namespace}` shows what changed in a namespace"
        );
    }
    Err(branch.become_gitcd(command))
}

/// Replaces this process with `gitcd blame`.
///
/// # Errors
/// The reason why that is impossible.
pub(crate) fn become_blame(home: &Home, heaven: Option<&str>, options: &Blame) -> anyhow::Result<()> {
    let branch = Branch::find(home, heaven, &options.own)?;
    let mut command = branch.command("blame");
    command.arg(format!("--at={}", options.at));
    command.args(options.field.iter().map(|field| format!("--field={field}")));
    let flags = [("--whole", options.whole), ("--show-secrets", options.show_secrets), ("--json", options.json)];
    command.args(flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag));
    command.args(["--", &branch.one_object(&options.object, options.namespace.as_deref())?]);
    Err(branch.become_gitcd(command))
}

/// Replaces this process with `gitcd diff`.
///
/// # Errors
/// The reason why that is impossible.
pub(crate) fn become_diff(home: &Home, heaven: Option<&str>, options: &Diff) -> anyhow::Result<()> {
    let branch = Branch::find(home, heaven, &options.own)?;
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

/// A branch that gitcd can read.
pub(crate) struct Branch {
    gitcd: PathBuf,
    location: Location,
}

impl Branch {
    /// Finds the branch of the own repository. Without one, finds that of the given heaven, or else that of the desk, or of the first
    /// heaven with a kube-apiserver.
    pub(crate) fn find(home: &Home, heaven: Option<&str>, own: &Own) -> anyhow::Result<Self> {
        let explicit = std::env::var_os("TRISHANKU_GITCD").map(PathBuf::from);
        let gitcd = find_gitcd(explicit.as_deref())?;
        Ok(Self { gitcd, location: own.location(home, heaven)? })
    }

    /// Returns the gitcd program.
    pub(crate) fn gitcd(&self) -> &Path {
        &self.gitcd
    }

    /// Returns the command of gitcd with this name, with the flags that select the branch.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.gitcd);
        command.arg(name).arg("--repo").arg(&self.location.repository);
        command.arg(format!("--data-reference-names=default={}", self.location.data));
        command.arg(format!("--metadata-reference-names=default={}", self.location.metadata));
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

    /// Runs gitcd and parses the JSON that it prints.
    fn json_output(&self, command: &mut Command) -> anyhow::Result<Value> {
        let output = self.output(command)?;
        // Code 1 means that there are differences.
        if !matches!(output.status.code(), Some(0 | 1)) || output.stdout.is_empty() {
            bail!("{}", complaint::of(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("gitcd printed invalid JSON")
    }

    /// Returns the built-in kinds, and those that `CustomResourceDefinitions` in the store define.
    fn all_kinds(&self) -> anyhow::Result<Kinds> {
        let definitions =
            self.json_output(self.command("diff").args([EVER, "--json", "--show-secrets", "--", DEFINITIONS]))?;
        let keys = definitions["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let fields = keys.iter().filter_map(|key| key["fields"].as_array()).flatten();
        let specs = fields.filter(|field| field["path"] == "spec").map(|field| &field["to"]);
        Ok(Kinds::builtin().with_definitions(specs))
    }

    fn objects(&self, words: &[String]) -> anyhow::Result<Vec<Object>> {
        objects::parse(words, || self.all_kinds())
    }

    /// Returns the key of the one object that the words name, which exists or existed.
    fn one_object(&self, words: &[String], namespace: Option<&str>) -> anyhow::Result<String> {
        let namespace = namespace.unwrap_or(NAMESPACE);
        let found = self.objects(words)?;
        let [Object { kind, name: Some(name) }] = &found[..] else {
            bail!("name one object, such as {}/NAME", words.join("/"));
        };
        let key = kind.key(Some(namespace), name);
        self.has_known(&key, kind, namespace, name)?;
        Ok(key)
    }

    /// Fails if the object never existed; the error lists those beside it.
    fn has_known(&self, key: &str, kind: &Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        let output = self.output(self.command("log").args(["--json", "--limit=1", "--", key]))?;
        let said = complaint::of(&output.stderr);
        if output.status.success() {
            return Ok(());
        }
        if !said.contains("was never in this branch") {
            bail!("{said}");
        }
        let place = if kind.is_namespaced { format!(" in namespace {namespace:?}") } else { String::new() };
        // After the words about the key, which users of kubectl did not write.
        let neighbours = said.rsplit_once("): ").map_or("", |(_, neighbours)| neighbours);
        bail!("there is and was no {} {name:?}{place}: {neighbours}", kind.singular)
    }
}
