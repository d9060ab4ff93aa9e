//! Flags, environment and configuration file, and what they start.

mod duration;
mod file;
mod init;
mod serve;

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Branches, PerBranch};

/// An etcd v3 server whose store is a branch of a Git repository.
///
/// Flags that hold a value for each branch take name=value[,name=value]; a value alone is for the branch "default".
/// Every flag can also be set by an environment variable (GITCD_ and the flag's name in capitals) or in the YAML file
/// given with --config, in this order.
#[derive(Debug, Parser)]
#[command(name = "gitcd", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    /// YAML file with flags (without the leading dashes) and their values
    #[arg(long, global = true, env = "GITCD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log what happens in detail (the same as --verbosity=1)
    #[arg(long, global = true, env = "GITCD_DEBUG")]
    debug: bool,
    /// How much to log: 0 normal, 1 debug, 2 trace
    #[arg(long, global = true, env = "GITCD_VERBOSITY", default_value_t = 0, value_name = "N")]
    verbosity: i32,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  gitcd init --repo=store.git
  gitcd serve --repo=store.git --key-prefixes=/registry --listen-urls=http://127.0.0.1:2379
  git -C store.git log --oneline main";

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a branch in a repository; make the repository too if it does not exist
    Init(Box<init::Args>),
    /// Serve the etcd API on branches of a repository
    Serve(Box<serve::Args>),
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
}

/// What `init` and `serve` have in common.
#[derive(Debug, Args)]
struct Common {
    /// The repository: a bare one, or a folder with one in .git [default: gitcd/repo.git in the user's data folder]
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    repo: Option<PathBuf>,
    /// References that hold the data
    #[arg(long, env = "GITCD_DATA_REFERENCE_NAMES", default_value = "default=refs/heads/main", value_name = "MAP")]
    data_reference_names: String,
    /// References that hold the metadata
    #[arg(
        long,
        env = "GITCD_METADATA_REFERENCE_NAMES",
        default_value = "default=refs/gitcd/metadata/main",
        value_name = "MAP"
    )]
    metadata_reference_names: String,
    /// Keys below these prefixes are files of the data; others are kept with the metadata
    #[arg(long, env = "GITCD_KEY_PREFIXES", default_value = "default=/", value_name = "MAP")]
    key_prefixes: String,
    /// Keys below these prefixes (several are separated by ':') are served but never committed; one that ends with '*' is compared by characters
    #[arg(long, env = "GITCD_EPHEMERAL_PREFIXES", default_value = "", value_name = "MAP")]
    ephemeral_prefixes: String,
    /// Author and committer of all commits
    #[arg(long, env = "GITCD_COMMITTER_NAME", default_value = "gitcd", value_name = "NAME")]
    committer_name: String,
    /// Their e-mail address
    #[arg(long, env = "GITCD_COMMITTER_EMAIL", default_value = "gitcd@localhost", value_name = "ADDRESS")]
    committer_email: String,
}

impl Common {
    fn branches(&self) -> anyhow::Result<Branches> {
        let branches = Branches {
            repository: match &self.repo {
                Some(repo) => std::path::absolute(repo)?,
                None => default_repository()?,
            },
            data: PerBranch::parse("data-reference-names", &self.data_reference_names)?,
            metadata: PerBranch::parse("metadata-reference-names", &self.metadata_reference_names)?,
            prefixes: PerBranch::parse("key-prefixes", &self.key_prefixes)?,
            ephemeral: PerBranch::parse("ephemeral-prefixes", &self.ephemeral_prefixes)?,
            committer_name: self.committer_name.clone(),
            committer_email: self.committer_email.clone(),
        };
        branches.check()?;
        Ok(branches)
    }
}

fn default_repository() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let data =
        data.ok_or_else(|| anyhow::anyhow!("there is no home folder: say where the repository is with --repo"))?;
    Ok(data.join("gitcd/repo.git"))
}

/// Runs the command line. Returns the exit code.
///
/// # Errors
/// Whatever the command reports; the message is for a person.
pub fn run() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args_os().collect();
    let command = file::with_defaults(Cli::command(), &args)?;
    let cli = Cli::from_arg_matches(&command.get_matches_from(&args))?;
    log(cli.verbosity.max(i32::from(cli.debug)));
    match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Version { json } => {
            let (version, etcd) = (env!("CARGO_PKG_VERSION"), crate::api::ETCD_VERSION);
            if json {
                println!("{}", serde_json::json!({ "gitcd": version, "etcd": etcd }));
            } else {
                println!("gitcd {version} (serves etcd {etcd})");
            }
            Ok(())
        }
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "gitcd", &mut std::io::stdout());
            Ok(())
        }
    }
}

fn log(verbosity: i32) {
    use std::io::IsTerminal;
    let level = match verbosity {
        ..=0 => "info",
        1 => "gitcd=debug,info",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
