//! The command line: flags, environment, configuration file, and the commands.

mod age;
mod certificates;
mod duration;
mod etcd_flags;
mod file;
mod fork;
mod graph;
mod health;
mod history;
mod host;
mod init;
mod limits;
mod loopback;
mod merge_file;
mod migrate;
mod origin;
mod permissions;
mod prepare;
mod progress;
mod pull;
mod restore;
mod retain;
mod serve;
mod status;
mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use gitcd_repo::branch;
use gitcd_repo::git_dir;
use gitcd_server::config::{Branches, ConfigError, PerBranch};
use gitcd_server::telemetry;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use trishanku_service::log_lines::{Format, LogLines};

use self::origin::Origins;

/// An etcd v3 server whose store is a branch of a Git repository.
///
/// Flags that have a value for each branch accept name=value[,name=value]; a single value is for the branch "default",
/// which is the only one if none is named.
/// Every flag can also be set by an environment variable (GITCD_ and the flag's name in capitals) or in the YAML file
/// given with --config, in this order.
#[derive(Debug, Parser)]
#[command(name = "gitcd", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    /// YAML file with flags (without the leading dashes) and their values
    #[arg(long, global = true, env = "GITCD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log in detail (the same as --verbosity=1)
    #[arg(long, global = true, env = "GITCD_DEBUG", value_parser = boolean)]
    debug: bool,
    /// Log level: 0 info, 1 debug, 2 trace
    #[arg(long, global = true, env = "GITCD_VERBOSITY", default_value_t = 0, value_name = "N")]
    verbosity: i32,
    /// Format of log lines on standard error: text for people, or a JSON object for each line
    #[arg(long, global = true, env = "GITCD_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

/// The format of log lines. Its values are explained by the flag: with texts of their own, the help of every command would be
/// twice as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    // `console` is etcd's name for it.
    #[value(alias = "console")]
    Text,
    Json,
}

/// How much is logged, and how.
#[derive(Clone, Copy, Debug)]
struct Logs {
    verbosity: i32,
    format: LogFormat,
}

const EXAMPLES: &str = "Examples:
  gitcd init --repo=store.git
  gitcd serve --repo=store.git --key-prefixes=/registry --listen-urls=http://127.0.0.1:2379
  git -C store.git log --oneline main";

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a branch in a repository, and the repository if it does not exist
    ///
    /// A branch that has only data gets its metadata from its history: every commit that changes keys is a revision. A branch of
    /// the Go implementation of gitcd is converted. An existing branch of gitcd is not changed.
    Init(Box<init::Args>),
    /// Create a repository with a remote, and a branch that starts from the remote's
    ///
    /// Once the branch has been served here, the remote is not contacted, so it may be down at later starts.
    Prepare(Box<prepare::Args>),
    /// Serve the etcd API on branches of a repository
    Serve(Box<serve::Args>),
    /// Pull branches of other repositories into branches that are not being served, merge, and push
    Pull(Box<pull::Args>),
    /// Serve repositories to Git clients
    Host(Box<host::Args>),
    /// Create a branch from a snapshot that `etcdctl snapshot save` took of a gitcd or an etcd
    Restore(Box<restore::Args>),
    /// Move from a running etcd to a branch, or back
    Migrate(Box<migrate::Args>),
    /// Create a branch in a repository of its own that continues from a moment of another branch
    ///
    /// The branch may be served meanwhile, and is not changed.
    Fork(Box<fork::Args>),
    /// Remove the older history of a branch, after a copy of it to an archive
    ///
    /// The branch may be served meanwhile.
    Retain(Box<retain::Args>),
    /// Show the status of served branches and of their remotes
    ///
    /// Prints a line for each branch, and below it one for each of its remotes.
    ///
    /// Exits with 1 if a server is unreachable, refuses writes, has rejected a file, cannot merge a commit, or has a remote that
    /// is not synced; otherwise with 0.
    Status(Box<status::Args>),
    /// Readiness check of a local gitcd, for exec probes
    ///
    /// Exits with 0 if it is ready, otherwise with 1.
    Health(Box<health::Args>),
    /// Draw branches and their merges
    ///
    /// Newest first, a line for each commit: its id, the references that point to it, its subject, its age. Runs of ordinary
    /// commits of one branch are one line, unless --all is given. At most the newest 50,000 commits are read.
    Graph(Box<graph::Args>),
    /// Show who changed a key and when, or all commits of a branch
    Log(Box<history::log::Args>),
    /// Show who set each field of a key to its value, when, and in which commit
    Blame(Box<history::blame::Args>),
    /// Show the value of a key, now or in the past
    Show(Box<history::show::Args>),
    /// Show the changes between two moments, by keys and fields
    Diff(Box<history::diff::Args>),
    /// Read a branch as of a revision or a time
    At(Box<history::at::Args>),
    /// Check that the metadata of a branch matches its data, and how every value is stored
    ///
    /// Only reads the repository. Exits with 0 if all is well, with 1 if something is wrong, with 2 if the check fails. To check
    /// the integrity of Git's objects, use `git fsck`.
    Verify(Box<history::verify::Args>),
    /// Merge a file by its fields, as `git merge-file` does by lines; Git can use it for all its merges
    ///
    /// Merges the changes from BASE to THEIRS into OURS, which gets the result. Where both sides changed the same field, the
    /// later write according to managedFields wins, then the greater hash, unless --ours or --theirs is given; lost values
    /// are printed to standard error. There are never conflict markers.
    ///
    /// Exits with 0 if there were no conflicts, with 1 if there were (with --driver: 0) or if the result is a deletion, with 2
    /// if the files cannot be merged.
    MergeFile(Box<merge_file::Args>),
    /// Print the version
    Version {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands to a folder
    #[command(hide = true)]
    Man {
        /// The folder, which must exist
        dir: PathBuf,
    },
}

impl Command {
    /// Returns whether the command creates or changes a repository.
    fn writes(&self) -> bool {
        use Command::{Fork, Host, Init, Migrate, Prepare, Pull, Restore, Retain, Serve};
        matches!(
            self,
            Init(_) | Fork(_) | Migrate(_) | Prepare(_) | Serve(_) | Pull(_) | Host(_) | Restore(_) | Retain(_)
        )
    }
}

/// Default author and committer of commits.
const COMMITTER_NAME: &str = "gitcd";

/// Flags of the commands that create or write branches.
#[derive(Debug, Args)]
struct Common {
    /// The repository: a bare one, or a folder with one in .git [default: gitcd/repo.git in the user's data folder]
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    repo: Option<PathBuf>,
    /// References of the data [default: refs/heads/main; for another branch refs/heads/NAME]
    #[arg(long, env = "GITCD_DATA_REFERENCE_NAMES", value_name = "MAP")]
    data_reference_names: Option<String>,
    /// References of the metadata [default: refs/gitcd/metadata/main; for another branch refs/gitcd/metadata/NAME]
    #[arg(long, env = "GITCD_METADATA_REFERENCE_NAMES", value_name = "MAP")]
    metadata_reference_names: Option<String>,
    /// Keys below these prefixes are files of the data; others are stored with the metadata [default: /]
    #[arg(long, env = "GITCD_KEY_PREFIXES", value_name = "MAP")]
    key_prefixes: Option<String>,
    /// Keys below these prefixes (separated by ':') are served but never committed; a prefix that ends with '*' matches by
    /// characters
    #[arg(long, env = "GITCD_EPHEMERAL_PREFIXES", value_name = "MAP")]
    ephemeral_prefixes: Option<String>,
    /// Author and committer of all commits
    #[arg(long, env = "GITCD_COMMITTER_NAME", default_value = COMMITTER_NAME, value_name = "NAME")]
    committer_name: String,
    /// Their e-mail address
    #[arg(long, env = "GITCD_COMMITTER_EMAIL", default_value = "gitcd@localhost", value_name = "ADDRESS")]
    committer_email: String,
}

impl Common {
    fn branches(&self) -> anyhow::Result<Branches> {
        let repository = match &self.repo {
            Some(repo) => std::path::absolute(repo)?,
            None => default_repository()?,
        };
        permissions::share(&repository);
        Ok(Branches {
            repository,
            data: per_branch("data-reference-names", self.data_reference_names.as_deref())?,
            metadata: per_branch("metadata-reference-names", self.metadata_reference_names.as_deref())?,
            prefixes: per_branch("key-prefixes", self.key_prefixes.as_deref())?,
            ephemeral: per_branch("ephemeral-prefixes", self.ephemeral_prefixes.as_deref())?,
            committer_name: self.committer_name.clone(),
            committer_email: self.committer_email.clone(),
        })
    }
}

/// Parses a flag with a value for each branch; without the flag, no branch has one.
fn per_branch(flag: &str, value: Option<&str>) -> Result<PerBranch, ConfigError> {
    PerBranch::parse(flag, value.unwrap_or_default())
}

/// Parses the words that environment variables and YAML files use for booleans.
fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" | "" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn default_repository() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| anyhow::anyhow!("there is no home folder: give the repository with --repo"))?;
    Ok(data.join("gitcd/repo.git"))
}

/// Returns the repository around the current folder if gitcd has served a branch of it, otherwise the default one.
///
/// For commands that read. Those that write use only a repository that was named, or the default.
fn repository_here() -> anyhow::Result<PathBuf> {
    let is_served = |repository: &git2::Repository| {
        repository.references_glob("refs/gitcd/metadata/*").is_ok_and(|mut found| found.next().is_some())
    };
    match git2::Repository::discover(".").ok().filter(is_served) {
        Some(repository) => Ok(repository.path().to_owned()),
        None => default_repository(),
    }
}

/// Opens a repository that a flag names.
fn open_repository(path: &Path) -> anyhow::Result<git2::Repository> {
    let opened = git2::Repository::open(git_dir(path));
    Ok(opened.map_err(|said| branch::OpenError::not_a_repository(path, &said))?)
}

/// Runs the command line. Returns the exit code.
///
/// # Errors
/// The error of the command, with a message for users.
pub fn run() -> anyhow::Result<ExitCode> {
    let args: Vec<_> = std::env::args_os().collect();
    let (command, file) = file::with_defaults(Cli::command(), &args)?;
    let origins = Origins::new(&args, file);
    let matches = command.try_get_matches_from(&args).unwrap_or_else(|error| origins.of_refused(error).exit());
    let cli = Cli::from_arg_matches(&matches)?;
    let logs = Logs { verbosity: cli.verbosity.max(i32::from(cli.debug)), format: cli.log_format };
    run_command(cli.command, logs).map_err(|error| origins.of_failed(error))
}

fn run_command(command: Command, logs: Logs) -> anyhow::Result<ExitCode> {
    if !matches!(command, Command::Serve(_)) {
        log(logs, None);
    }
    // Fails only where a policy forbids it; the limits of connections follow the limit that there is.
    let _ = gitcd_core::descriptors::raise_limit();
    if command.writes() {
        permissions::restrict();
    }
    match command {
        Command::Init(args) => init::run(&args)?,
        Command::Prepare(args) => prepare::run(&args)?,
        Command::Serve(args) => serve::run(&args, logs)?,
        Command::Pull(args) => pull::run(&args)?,
        Command::Host(args) => host::run(&args)?,
        Command::Restore(args) => restore::run(&args)?,
        Command::Migrate(args) => migrate::run(&args)?,
        Command::Fork(args) => fork::run(&args)?,
        Command::Retain(args) => retain::run(&args)?,
        Command::Status(args) => return status::run(&args),
        Command::Log(args) => history::log::run(&args)?,
        Command::Blame(args) => history::blame::run(&args)?,
        Command::Show(args) => history::show::run(&args)?,
        Command::Diff(args) => return Ok(history::diff::run(&args)),
        Command::Verify(args) => return Ok(history::verify::run(&args)),
        Command::At(args) => history::at::run(&args)?,
        Command::Health(args) => return health::run(&args),
        Command::Graph(args) => graph::run(&args)?,
        Command::MergeFile(args) => return Ok(merge_file::run(&args)),
        Command::Version { json } => {
            let (version, etcd) = (env!("CARGO_PKG_VERSION"), gitcd_server::api::ETCD_VERSION);
            let rules = gitcd_merge::RULES;
            if json {
                trishanku_stdio::println!(
                    "{}",
                    serde_json::json!({ "gitcd": version, "etcd": etcd, "mergeRules": rules })
                );
            } else {
                trishanku_stdio::println!("gitcd {version} (serves etcd {etcd}; merge rules {rules})");
            }
        }
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "gitcd", &mut trishanku_stdio::plain_stdout());
        }
        Command::Man { dir } => {
            clap_mangen::generate_to(Cli::command(), &dir)
                .with_context(|| format!("cannot write to {}", dir.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Threads have large stacks, since nested directories of external commits are walked recursively; unused stack costs nothing.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().thread_stack_size(16 << 20).enable_all().build()
}

/// Logs to standard error, and sends spans to `traces`.
fn log(logs: Logs, traces: Option<telemetry::Layer>) {
    use std::io::IsTerminal;
    let level = match logs.verbosity {
        ..=0 => "info",
        1 => "gitcd=debug,info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // The hint leaves the most detailed level to the filter. Without it, every span of every library would be created in vain.
    let others =
        filter_fn(|metadata| metadata.target() != gitcd_core::trace::TARGET).with_max_level_hint(LevelFilter::TRACE);
    let lines = tracing_subscriber::fmt::layer().with_writer(progress::log_writer);
    let lines = match logs.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed(),
        LogFormat::Json => lines.fmt_fields(JsonFields::new()).event_format(LogLines::new(Format::Json)).boxed(),
    };
    tracing_subscriber::registry().with(traces).with(lines.with_filter(filter.and(others))).init();
}
