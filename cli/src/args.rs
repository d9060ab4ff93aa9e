//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use trishanku::headless::Topology;
use trishanku::heavens::{FlagOption, ImagePrograms, ManifestError, Mapping, RemoteOption};
use trishanku::plane::Home;
use trishanku::plane::home::HomeError;
use trishanku::plane::state::Store;
use trishanku::scaffold;
use trishanku::up::Adaptations;

/// Runs Kubernetes controllers on Git branches of their own, as plain processes of this machine.
///
/// A heaven is a controller with a kube-apiserver of its own, whose store is a Git branch. A headless cluster consists of
/// several heavens whose branches are merged. The desk is the heaven for people.
#[derive(Debug, Parser)]
#[command(
    name = "trishanku",
    version,
    after_help = "\
Examples:
  trishanku up                       bring a headless cluster up; Ctrl-C stops it; the data stays
  trishanku up --detach              the same in the background
  trishanku demo                     make a Deployment, and see which branch did what
  trishanku kubectl get namespaces   kubectl with the right kubeconfig
  trishanku status                   every heaven: what runs, its branch, how far it is behind
  trishanku logs desk --follow       what the components of a heaven write
  trishanku doctor                   problems of this machine and of the cluster, with remedies
  trishanku graph                    how the branches were merged
  trishanku log -p deploy/nginx      who changed an object, when, and which fields
  trishanku blame deploy/nginx       who set each field to its value
  trishanku diff --since=10m         what differs from ten minutes ago
  trishanku at 10m kubectl get pods  what kubectl would have shown ten minutes ago
  trishanku ui                       the history as a web page on this machine
  trishanku run -f heaven.yaml       the heavens of your own manifests, as processes
  trishanku --name b up --central    beside the first, one kube-apiserver on one branch
  trishanku down                     stop it; the data stays
  trishanku list                     all control planes on this machine
  trishanku delete                   stop it, and delete its data
  trishanku lint -f FOLDER           what is wrong with manifests
  trishanku new controller NAME      a controller in Rust, with its tests and manifests"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Selects the control plane.
#[derive(Debug, Args)]
pub(crate) struct Which {
    #[arg(
        long,
        global = true,
        env = "TRISHANKU_NAME",
        default_value = "default",
        help = "The control plane's name; its state is in $XDG_DATA_HOME/trishanku/NAME"
    )]
    name: String,
    /// State folder, instead of a name
    #[arg(long, global = true, env = "TRISHANKU_DIR", value_name = "DIR", conflicts_with = "name")]
    dir: Option<PathBuf>,
    /// Heaven to use [default: the desk, or the first one]
    #[arg(long, global = true, env = "TRISHANKU_HEAVEN", value_name = "HEAVEN")]
    pub(crate) heaven: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring a headless cluster up; it continues with the data it had
    Up(Up),
    /// Run the heavens and merges of manifests as processes
    Run(Run),
    /// Stop the control plane; its data stays
    Down,
    /// Stop the control plane and delete its data; asks first
    Delete(Delete),
    /// List the control planes on this machine: name, state, since when, heavens, folder
    List(List),
    /// Show what runs; exits with 0 if everything is ready, otherwise with 3
    Status(Status),
    /// Print the logs of components, and follow them
    Logs(crate::logs::Logs),
    /// Check this machine and the control plane for problems; exits with 3 if a check fails
    Doctor(crate::doctor::Doctor),
    /// Draw how the branches were merged
    #[command(disable_help_flag = true)]
    Graph {
        /// Arguments for `gitcd graph`, such as --all and --limit=200
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Show who changed an object and when, or all commits of a branch
    Log(crate::history::Log),
    /// Show who set each field of an object to its value, when, and in which commit
    Blame(crate::history::Blame),
    /// Show what differs between two moments, by objects and fields
    Diff(crate::history::Diff),
    /// Run a command, such as kubectl, with a read-only kube-apiserver on the past of a branch
    At(crate::at::At),
    /// Undo the changes of commits, of a user, or since a moment; later edits stay
    Undo(crate::undo::Undo),
    /// Make objects, a namespace or everything as they were at a moment
    Restore(crate::undo::Restore),
    /// Bring deleted objects back
    Undelete(crate::undo::Undelete),
    /// Serve a local web page on the history: commits, objects, who set which field
    Ui(crate::ui::Ui),
    /// Create a Deployment at the desk, and show which branch did what, and when
    Demo(Demo),
    /// Run kubectl as this control plane's administrator
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Reassign cluster IPs and node ports that two branches assigned at once; runs in one heaven of a cluster
    Allocations {
        /// Kubeconfig of an administrator of the heaven's kube-apiserver
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// Check manifests of heavens, merges and repositories without a cluster; exits with 1 if there are errors
    Lint(crate::lint::Lint),
    /// Create something new in this folder
    New {
        #[command(subcommand)]
        what: New,
    },
    /// Print a completion script, such as for `source <(trishanku completion bash)`
    Completion {
        /// Shell to complete for
        shell: Shell,
    },
    /// Write the man pages of all commands to a folder
    #[command(hide = true)]
    Man {
        /// The folder, which must exist
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum New {
    /// A Kubernetes controller in Rust, ready to build, test and deploy
    Controller(NewController),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku new controller rain-gauge
  trishanku new controller rain-gauge --framework ~/src/trishanku

The folder has a kind (RainGauge), its reconciler, a test on a real kube-apiserver, and manifests for `kubectl apply -k`.")]
pub(crate) struct NewController {
    /// Name of the controller, its folder, crate and namespace: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    pub(crate) called: scaffold::Name,
    /// Source of the framework: a checkout of Trishanku, or the URL of a Git repository
    #[arg(long, value_name = "PATH|GIT-URL", default_value = env!("CARGO_PKG_REPOSITORY"))]
    pub(crate) framework: scaffold::Source,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku up --detach
  trishanku up --topology mesh
  trishanku up --filename more.yaml --image-program my-controller=target/release/my-controller
  trishanku up --dir /tmp/plane --central --storage-media-type application/yaml

In the foreground, the first Ctrl-C stops everything in reverse order, and a second one kills it. A component that dies is
restarted. Running `up` again continues with the same data, ports and certificates.")]
pub(crate) struct Up {
    /// How the branches are connected [default: unchanged; star for a new cluster]
    #[arg(long, value_name = "TOPOLOGY")]
    pub(crate) topology: Option<Topology>,
    /// One kube-apiserver on one branch, with kube-controller-manager and kube-scheduler beside it
    #[arg(long, conflicts_with_all = ["topology", "filename", "drop_flag", "add_flag"])]
    pub(crate) central: bool,
    /// More manifests, or changes to those of the cluster (see `run`)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) adapt: Adapt,
    #[command(flatten)]
    pub(crate) supervise: Supervise,
    /// Encoding of stored objects; JSON and YAML are readable in Git [default: unchanged; JSON for a new control plane]
    #[arg(long, value_name = "TYPE", value_parser = MEDIA_TYPES, requires = "central")]
    pub(crate) storage_media_type: Option<String>,
    /// Run on another store, for comparison
    #[arg(long, hide = true, requires = "central")]
    pub(crate) store: Option<Store>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku --name mine run --filename heaven.yaml --image-program example.org/app=target/release/app
  trishanku --name mine run -f published.yaml -f changes.yaml --remote-url https://github.com/me/cluster=/srv/cluster.git

The files contain TrishankuHeavens, AutomatedMerges, and the Secrets and ConfigMaps that they name. A later document of the same kind and name
is applied to the earlier one as a JSON merge patch. Missing certificates are issued. See docs/processes.md.")]
pub(crate) struct Run {
    /// File with manifests; may be repeated
    #[arg(long, short, required = true, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) adapt: Adapt,
    #[command(flatten)]
    pub(crate) supervise: Supervise,
}

/// How manifests become processes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Manifests as processes")]
pub(crate) struct Adapt {
    /// Program to run for an image; the image may be given without tag, or as the end of its name
    #[arg(long, value_name = "IMAGE=PATH")]
    image_program: Vec<Mapping>,
    /// File with a line `IMAGE: PATH` for each image
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Repository to use instead of a remote's; a folder that does not exist is created
    #[arg(long, value_name = "OLD=NEW")]
    remote_url: Vec<RemoteOption>,
    /// Flag to remove from a process, such as one that a newer version does not know
    #[arg(long, value_name = "PROCESS=--FLAG")]
    drop_flag: Vec<FlagOption>,
    /// Flag to add to a process; replaces the same flag with another value
    #[arg(long, value_name = "PROCESS=--FLAG[=VALUE]")]
    add_flag: Vec<FlagOption>,
}

impl Adapt {
    pub(crate) fn adaptations(&self, files: &[PathBuf]) -> Result<Adaptations, ManifestError> {
        Ok(Adaptations {
            files: files.to_vec(),
            images: ImagePrograms::read(self.images.as_deref(), &self.image_program)?,
            remotes: self.remote_url.clone(),
            dropped_flags: self.drop_flag.clone(),
            added_flags: self.add_flag.clone(),
        })
    }
}

/// How programs are found and supervised.
#[derive(Debug, Args)]
#[command(next_help_heading = "Processes")]
pub(crate) struct Supervise {
    /// Return after the start, with 0 if everything is ready and 3 if not; a supervisor keeps running in the background
    #[arg(long)]
    pub(crate) detach: bool,
    #[arg(
        long,
        value_name = "DIR",
        help = "The folder of the Kubernetes programs [default: $TRISHANKU_ASSETS, $KUBEBUILDER_ASSETS, what `make assets` made]"
    )]
    pub(crate) assets: Option<PathBuf>,
    /// gitcd program [default: the one beside trishanku, else on PATH]
    #[arg(long, env = "TRISHANKU_GITCD", value_name = "PROGRAM")]
    pub(crate) gitcd: Option<PathBuf>,
    /// Whether commits name the user that made a change, by the audit events of kube-apiserver; in a headless cluster those of the
    /// desk [default: unchanged; on for a new control plane]
    #[arg(long, value_name = "on|off")]
    pub(crate) audit: Option<Switch>,
    /// Seconds that each component has to become ready
    #[arg(long, value_name = "SECONDS", default_value = "90", value_parser = crate::seconds::parse)]
    pub(crate) ready_within: Duration,
    /// Stop everything when standard input closes: for programs that must not leave a control plane behind
    #[arg(long, conflicts_with = "detach")]
    pub(crate) until_stdin_closes: bool,
    /// Set by --detach for the supervisor that it starts
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) in_background: Option<Colour>,
}

const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Whether the terminal from which the supervisor was started shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    Always,
    Never,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku demo
  trishanku demo --replicas=10 --keep

If there is no node, a placeholder Node object is created: pods are bound to it, but do not run.")]
pub(crate) struct Demo {
    /// Number of pods
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) replicas: u32,
    /// Keep the Deployment and the placeholder node; later demos leave them alone
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku delete                   asks, then stops and deletes the default control plane
  trishanku delete --name b --yes    without a question

A folder that is not a control plane's, or that contains other files, stays unchanged.")]
pub(crate) struct Delete {
    /// Do not ask; required if standard input is not a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Commands that need no control plane.
const WITHOUT_PLANE: [&str; 5] = ["allocations", "completion", "list", "man", "new"];

/// The command line, with the options that select a control plane hidden where none is needed.
pub(crate) fn command() -> clap::Command {
    let command = Arguments::command();
    let global = command.get_arguments().filter(|argument| argument.is_global_set());
    let hidden: Vec<_> = global.map(|argument| argument.clone().hide(true)).collect();
    // Arguments that a subcommand defines itself are not inherited, and its own subcommands inherit its definition.
    WITHOUT_PLANE
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |sub| sub.args(hidden.clone())))
}

impl Which {
    pub(crate) fn home(&self) -> Result<Home, HomeError> {
        match &self.dir {
            Some(dir) => Ok(Home::at(dir)),
            None => Home::named(&self.name),
        }
    }

    /// The option that makes another command select this control plane; `None` for the default one.
    pub(crate) fn selector(&self) -> Option<(&'static str, PathBuf)> {
        match &self.dir {
            Some(dir) => Some(("--dir", Home::at(dir).dir().into())),
            None if self.name == "default" => None,
            None => Some(("--name", self.name.clone().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Arguments {
        Arguments::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_names_a_control_plane_where_there_is_one() {
        let help = |line: &str| command().try_get_matches_from(line.split(' ')).unwrap_err().to_string();
        for (line, expected) in [
            ("trishanku --help", true),
            ("trishanku up --help", true),
            ("trishanku new --help", false),
            ("trishanku new controller --help", false),
            ("trishanku completion --help", false),
            ("trishanku list --help", false),
            ("trishanku delete --help", true),
        ] {
            let help = help(line);
            assert_eq!((help.contains("--name"), help.contains("--dir")), (expected, expected), "{line}: {help}");
        }
    }

    #[test]
    fn everything_after_kubectl_is_kubectls_own() {
        for (line, expected) in [
            ("trishanku kubectl get pods -n x", "get pods -n x"),
            ("trishanku kubectl -- get pods --help", "get pods --help"),
            ("trishanku kubectl exec p -- ls -l", "exec p -- ls -l"),
            ("trishanku --name b kubectl --help", "--help"),
        ] {
            let Command::Kubectl { args } = parse(line).command else {
                panic!("{line} is not kubectl");
            };
            let args: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
            assert_eq!(args.join(" "), expected, "{line}");
        }
    }
}
