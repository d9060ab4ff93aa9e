//! `gitcd merge-file`.

mod identity;
mod install;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use git2::{ObjectType, Oid, Repository};

use gitcd_merge::form;
use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_merge::value::Value;
use gitcd_merge::yaml;
use gitcd_merge::{Conflict, Outcome, Policy, Side, merge};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    favoured: Favoured,
    /// The path of the file in the tree, for messages
    #[arg(long, value_name = "PATH")]
    key: Option<String>,
    /// Print the result instead of writing it
    #[arg(short = 'p', long)]
    stdout: bool,
    /// Called by Git as a merge driver: exit with 0 even after conflicts, so that Git continues
    #[arg(long)]
    driver: bool,
    /// Make Git use this program for all files of the repository: writes its configuration and info/attributes
    #[arg(long, conflicts_with_all = ["files", "ours", "theirs", "key", "stdout", "driver"])]
    install: bool,
    /// The repository, for --install and for the definitions of custom resources in its work tree [default: that of the
    /// current folder]
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Kinds whose values are hidden like those of Secrets, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    secret_kinds: SecretKinds,
    /// Ours, the common ancestor (empty if there is none), and theirs
    #[arg(value_names = ["OURS", "BASE", "THEIRS"], num_args = 3, required_unless_present = "install")]
    files: Vec<PathBuf>,
}

/// The side that wins conflicts; by default the later write.
#[derive(Debug, clap::Args)]
struct Favoured {
    /// In conflicts, keep ours
    #[arg(long, conflicts_with = "theirs")]
    ours: bool,
    /// In conflicts, keep theirs
    #[arg(long)]
    theirs: bool,
}

const EXAMPLES: &str = "Examples:
  gitcd merge-file --stdout mine.json base.json other.json
  gitcd merge-file --install && git merge desk/main";

/// Folder of a work tree with the definitions of custom resources.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

pub(super) fn run(args: &Args) -> ExitCode {
    let done =
        if args.install { install::install(args.repo.as_deref()).map(|()| ExitCode::SUCCESS) } else { files(args) };
    done.unwrap_or_else(|error| {
        trishanku_stdio::eprintln!("gitcd: {error:#}");
        ExitCode::from(2)
    })
}

fn files(args: &Args) -> anyhow::Result<ExitCode> {
    let [ours, base, theirs] = &args.files[..] else { unreachable!("clap requires three files") };
    let (ours, base, theirs) = (File::read(ours)?, File::read(base)?, File::read(theirs)?);
    let policy = match (args.favoured.ours, args.favoured.theirs) {
        (true, _) => Policy::Ours,
        (_, true) => Policy::Theirs,
        _ => Policy::Later,
    };
    let what = args.key.clone().unwrap_or_else(|| ours.path.display().to_string());
    if ours.value != theirs.value && theirs.value != base.value {
        sound(&what, &ours, &base, &theirs)?;
    }
    if args.driver {
        identity::same(&what, [("ours", &ours.value), ("the ancestor", &base.value), ("theirs", &theirs.value)])?;
    }
    let schemas = schemas(args.repo.as_deref(), &args.secret_kinds);
    // Git passes an empty file if there is no ancestor.
    let base_value = Some(&base.value[..]).filter(|value| !value.is_empty());
    let merged = merge(&schemas, policy, base_value, Some(ours.side()?), Some(theirs.side()?));
    for conflict in &merged.conflicts {
        print_conflict(&what, conflict);
    }
    let result = match merged.outcome {
        Outcome::Ours => ours.blob,
        Outcome::Theirs => theirs.blob,
        Outcome::New(value) => form::encode(&value).1.into_owned(),
        Outcome::Deleted => {
            trishanku_stdio::eprintln!(
                "{what}: being deleted, and its last finalizer is gone: remove the file (git rm)"
            );
            return Ok(ExitCode::FAILURE);
        }
    };
    if args.stdout {
        use std::io::Write as _;
        trishanku_stdio::plain_stdout().write_all(&result)?;
    } else {
        std::fs::write(&ours.path, &result).with_context(|| format!("cannot write {}", ours.path.display()))?;
    }
    let is_clean = merged.conflicts.is_empty() || args.driver;
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct File {
    path: PathBuf,
    blob: Vec<u8>,
    value: Vec<u8>,
}

impl File {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let blob = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value = form::decode(form::guess(&blob), &blob).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), blob, value })
    }

    fn side(&self) -> anyhow::Result<Side<'_>> {
        let id = Oid::hash_object(ObjectType::Blob, &self.blob)?;
        Ok(Side { value: &self.value, hash: id.as_bytes().try_into().context("an object id has 20 bytes")? })
    }
}

/// Refuses files that are meant as objects but invalid. Other files that are no objects are taken whole from one side.
fn sound(what: &str, ours: &File, base: &File, theirs: &File) -> anyhow::Result<()> {
    let is_object = |file: &File| Value::parse(&file.value).is_some();
    let is_meant = |file: &File| {
        let mut lines = file.value.split(|byte| *byte == b'\n');
        file.value.trim_ascii_start().starts_with(b"{") || lines.any(|line| line.starts_with(b"<<<<<<< "))
    };
    let are_objects = [ours, base, theirs].into_iter().any(is_object);
    for (side, file) in [("ours", ours), ("theirs", theirs)] {
        if !is_object(file) && (are_objects || is_meant(file)) {
            let path = file.path.display();
            bail!("{what}: {side} ({path}) is not a JSON or YAML object, or repeats a field; ours is not changed");
        }
    }
    Ok(())
}

fn print_conflict(what: &str, Conflict { field, kept, lost }: &Conflict) {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    let field = if field.is_empty() { "the whole object" } else { field };
    let line = format!("{what}: {field}: kept {}, lost {}", text(kept), text(lost));
    // File contents are external text, which must not move the cursor.
    trishanku_stdio::eprintln!("{}", line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>());
}

/// Returns the schemas of the built-in kinds, and of those that the work tree defines.
fn schemas(repo: Option<&Path>, secrets: &SecretKinds) -> Schemas {
    let start = repo.unwrap_or(Path::new("."));
    let top = Repository::discover(start).ok().and_then(|repository| repository.workdir().map(Path::to_owned));
    let folder = top.unwrap_or_else(|| start.to_owned()).join(DEFINITIONS);
    let mut files: Vec<_> = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read(path).ok()?;
        serde_json::from_slice(&text).ok().or_else(|| yaml::from_str(std::str::from_utf8(&text).ok()?).ok())
    };
    let definitions: Vec<serde_json::Value> = files.into_iter().filter_map(read).collect();
    let (schemas, problems) = Schemas::builtin().with_secret_kinds(secrets.clone()).with_crds(&definitions);
    for problem in problems {
        tracing::debug!(problem, "a CustomResourceDefinition is not used");
    }
    schemas
}
