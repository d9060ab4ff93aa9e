//! `gitcd pull`, and the flags that it has in common with `gitcd serve`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use gitcd_core::scope::{EVERYTHING, NOTHING, Scope};
use gitcd_merge::Policy;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_server::config::{ConfigError, PerBranch, listen_urls};
use gitcd_server::server::{self, ServeError, Server};
use gitcd_sync::Config;
use gitcd_sync::credentials::Credentials;
use gitcd_sync::dry_run::ApiServer;
use gitcd_sync::remote::Remote;

use super::certificates::TlsFlags;
use super::progress::Fetches;
use super::stop::{Outcome, Stop};
use super::{Common, boolean, duration, per_branch};
use crate::{api, committer};

/// Shortest interval of packs while a branch changes that others follow.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(20);
/// How long echoes to the only remote of a served branch are deferred: longer than each step of a chain of controllers that
/// change one object after the other, shorter than the chain.
const ECHOES_AFTER: Duration = Duration::from_millis(100);

/// Remotes to pull from and push to. Values for several remotes are separated by ':'; a single value is for all of them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Remotes")]
pub(super) struct Flags {
    /// Remotes to follow, by their names in the repository's configuration (see `git remote`), such as default=origin:desk
    #[arg(long, env = "GITCD_REMOTE_NAMES", value_name = "MAP")]
    remote_names: Option<String>,
    /// References of the remotes to merge [default: that of the branch itself]
    #[arg(long, env = "GITCD_REMOTE_DATA_REFERENCE_NAMES", value_name = "MAP")]
    remote_data_reference_names: Option<String>,
    #[arg(long, env = "GITCD_REMOTE_META_REFERENCE_NAMES", hide = true)]
    remote_meta_reference_names: Option<String>,
    /// Winner of conflicts: 1 ours, 2 theirs, 0 the later write [default: 0]
    #[arg(long, env = "GITCD_MERGE_CONFLICT_RESOLUTIONS", value_name = "MAP")]
    merge_conflict_resolutions: Option<String>,
    /// Keys to merge from the remotes: regular expressions that match anywhere in the key; write ':' as \: and ',' as \x2C
    /// [default: .*]
    #[arg(long, env = "GITCD_MERGE_RETENTION_POLICIES_INCLUDE", value_name = "MAP")]
    merge_retention_policies_include: Option<String>,
    /// Keys to exclude of those [default: ^$]
    #[arg(long, env = "GITCD_MERGE_RETENTION_POLICIES_EXCLUDE", value_name = "MAP")]
    merge_retention_policies_exclude: Option<String>,
    /// Always make a merge commit (git merge --no-ff) [default: false]
    #[arg(long, env = "GITCD_NO_FAST_FORWARDS", value_name = "MAP")]
    no_fast_forwards: Option<String>,
    /// Merge what others have fetched; fetch nothing [default: false]
    #[arg(long, env = "GITCD_NO_FETCHES", value_name = "MAP")]
    no_fetches: Option<String>,
    /// Push the branch after each pull, and after each commit [default: false]
    #[arg(long, env = "GITCD_PUSH_AFTER_MERGES", value_name = "MAP")]
    push_after_merges: Option<String>,
    /// Push it even if the pull failed [default: false]
    #[arg(long, env = "GITCD_PUSH_ON_PULL_FAILURES", value_name = "MAP")]
    push_on_pull_failures: Option<String>,
    #[command(flatten)]
    access: Access,
    /// Kinds that are hidden like Secrets in commit messages, answers to pushes and statuses, such as example.org/Vault,ConfigMap
    #[arg(long, env = "GITCD_SECRET_KINDS", default_value = "", hide_default_value = true, value_name = "KINDS")]
    secret_kinds: SecretKinds,
    /// Kubeconfigs of the kube-apiservers that run on the branches: each pushed file is sent there as a server-side dry run before
    /// it is merged
    #[arg(long, env = "GITCD_KUBECONFIGS", value_name = "MAP")]
    kubeconfigs: Option<String>,
    /// Poll interval for remotes; 0: serve does not pull, pull pulls once
    #[arg(
        long,
        env = "GITCD_PULL_TICKER_DURATION",
        default_value = "0",
        value_parser = ticker,
        value_name = "DURATION"
    )]
    pull_ticker_duration: Duration,
}

/// Credentials for remotes.
#[derive(Debug, clap::Args)]
pub(super) struct Access {
    /// File with credentials as Git stores them (.git-credentials); read again for every exchange
    #[arg(long, env = "GITCD_CREDENTIALS_FILE", value_name = "FILE")]
    credentials_file: Option<PathBuf>,
    /// File with a token for remotes over HTTPS
    #[arg(long, env = "GITCD_TOKEN_FILE", value_name = "FILE", conflicts_with = "credentials_file")]
    token_file: Option<PathBuf>,
    /// Folder of a mounted Kubernetes Secret: .git-credentials, or username and password, and url if these are for one server
    /// only
    #[arg(
        long,
        env = "GITCD_CREDENTIALS_FOLDER",
        value_name = "DIR",
        conflicts_with_all = ["credentials_file", "token_file"]
    )]
    credentials_folder: Option<PathBuf>,
    /// Private key for remotes over SSH
    #[arg(long, env = "GITCD_SSH_KEY_FILE", value_name = "FILE")]
    ssh_key_file: Option<PathBuf>,
    /// Known hosts for SSH [default: those of the user]
    #[arg(long, env = "GITCD_SSH_KNOWN_HOSTS_FILE", value_name = "FILE")]
    ssh_known_hosts_file: Option<PathBuf>,
    /// CA certificates to trust for remotes over HTTPS, in addition to those of the system (PEM file); read again for every
    /// exchange [default: ca.crt in --credentials-folder, if there is one]
    #[arg(long, env = "GITCD_REMOTE_CACERT", value_name = "FILE")]
    remote_cacert: Option<PathBuf>,
    /// Send passwords and tokens also over plain HTTP to other machines. Everyone on the network between them can read these
    #[arg(long, env = "GITCD_ALLOW_PLAIN_HTTP_CREDENTIALS", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    allow_plain_http_credentials: bool,
}

impl Access {
    pub(super) fn credentials(&self) -> Credentials {
        Credentials {
            store: absolute(self.credentials_file.as_deref()),
            token: absolute(self.token_file.as_deref()),
            folder: absolute(self.credentials_folder.as_deref()),
            ssh_key: absolute(self.ssh_key_file.as_deref()),
            ssh_known_hosts: absolute(self.ssh_known_hosts_file.as_deref()),
            authorities: absolute(self.remote_cacert.as_deref()),
            plain_http: self.allow_plain_http_credentials,
        }
    }
}

/// Makes a path absolute, since `git` runs in the repository's folder.
fn absolute(path: Option<&Path>) -> Option<PathBuf> {
    path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

fn ticker(text: &str) -> Result<Duration, String> {
    if text.is_empty() { Ok(Duration::ZERO) } else { duration::parse(text) }
}

/// The parsed flags, by branch.
pub(super) struct Remotes {
    names: PerBranch,
    references: PerBranch,
    resolutions: PerBranch,
    include: PerBranch,
    exclude: PerBranch,
    no_fast_forwards: PerBranch,
    no_fetches: PerBranch,
    push_after_merges: PerBranch,
    push_on_pull_failures: PerBranch,
    credentials: Credentials,
    secret_kinds: SecretKinds,
    kubeconfigs: PerBranch,
    interval: Option<Duration>,
}

impl Flags {
    pub(super) fn warn(&self) {
        if self.remote_meta_reference_names.is_some() {
            tracing::warn!("--remote-meta-reference-names has no effect any more: metadata is never merged");
        }
    }

    pub(super) fn read(&self) -> Result<Remotes, ConfigError> {
        Ok(Remotes {
            names: per_branch("remote-names", self.remote_names.as_deref())?,
            references: per_branch("remote-data-reference-names", self.remote_data_reference_names.as_deref())?,
            resolutions: per_branch("merge-conflict-resolutions", self.merge_conflict_resolutions.as_deref())?,
            include: per_branch("merge-retention-policies-include", self.merge_retention_policies_include.as_deref())?,
            exclude: per_branch("merge-retention-policies-exclude", self.merge_retention_policies_exclude.as_deref())?,
            no_fast_forwards: per_branch("no-fast-forwards", self.no_fast_forwards.as_deref())?,
            no_fetches: per_branch("no-fetches", self.no_fetches.as_deref())?,
            push_after_merges: per_branch("push-after-merges", self.push_after_merges.as_deref())?,
            push_on_pull_failures: per_branch("push-on-pull-failures", self.push_on_pull_failures.as_deref())?,
            credentials: self.access.credentials(),
            secret_kinds: self.secret_kinds.clone(),
            kubeconfigs: per_branch("kubeconfigs", self.kubeconfigs.as_deref())?,
            interval: (!self.pull_ticker_duration.is_zero()).then_some(self.pull_ticker_duration),
        })
    }
}

impl Remotes {
    pub(super) fn names(&self) -> &PerBranch {
        &self.names
    }

    /// Returns a remote with the default settings of one that is followed.
    pub(super) fn remote(&self, name: &str) -> Remote {
        Remote { push_after_merge: true, credentials: self.credentials.clone(), ..Remote::named(name, "") }
    }

    /// Returns the remotes of a branch.
    pub(super) fn of(&self, branch: &str) -> Result<Config, ConfigError> {
        let names = split(self.names.of(branch).unwrap_or_default());
        let names: Vec<&str> = names.iter().map(|name| &**name).filter(|name| !name.is_empty()).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(wrong("remote-names", name, "it is named twice"));
            }
        }
        let mut remotes = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let value = |flag, map| one_of(flag, map, branch, at, names.len());
            let truth = |flag, map| {
                let Some(text) = value(flag, map)? else { return Ok(false) };
                boolean(&text).map_err(|problem| wrong(flag, &text, &problem))
            };
            let regex = |flag, map, usual: &str| Ok(value(flag, map)?.unwrap_or_else(|| usual.to_owned()));
            let (include, exclude) = (
                regex("merge-retention-policies-include", &self.include, EVERYTHING)?,
                regex("merge-retention-policies-exclude", &self.exclude, NOTHING)?,
            );
            // Checked on its own first, so that an error names the right flag.
            Scope::new(EVERYTHING, &exclude)
                .map_err(|error| wrong("merge-retention-policies-exclude", &exclude, &error.to_string()))?;
            let scope = Scope::new(&include, &exclude)
                .map_err(|error| wrong("merge-retention-policies-include", &include, &error.to_string()))?;
            let policy = match value("merge-conflict-resolutions", &self.resolutions)?.as_deref() {
                None | Some("" | "0") => Policy::Later,
                Some("1") => Policy::Ours,
                Some("2") => Policy::Theirs,
                Some(other) => return Err(wrong("merge-conflict-resolutions", other, "it must be 0, 1 or 2")),
            };
            let reference = value("remote-data-reference-names", &self.references)?;
            remotes.push(Remote {
                name: (*name).to_owned(),
                data_reference: reference.map(full).unwrap_or_default(),
                policy,
                scope,
                fast_forward: !truth("no-fast-forwards", &self.no_fast_forwards)?,
                fetch: !truth("no-fetches", &self.no_fetches)?,
                push_after_merge: truth("push-after-merges", &self.push_after_merges)?,
                push_on_pull_failure: truth("push-on-pull-failures", &self.push_on_pull_failures)?,
                credentials: self.credentials.clone(),
            });
        }
        let interval = self.interval.filter(|_| !remotes.is_empty());
        // With several remotes, each may be followed for the changes of the others.
        let echoes_after = (remotes.len() == 1).then_some(ECHOES_AFTER);
        let secret_kinds = self.secret_kinds.clone();
        let kubeconfig = absolute(self.kubeconfigs.of(branch).filter(|file| !file.is_empty()).map(Path::new));
        let api_server = kubeconfig.map(|file| ApiServer::of(file).plain_http(self.credentials.plain_http));
        Ok(Config { remotes, interval, by_hand: false, echoes_after, secret_kinds, api_server })
    }
}

/// Returns a branch's name as a reference.
pub(super) fn full(name: String) -> String {
    if name.is_empty() || name.starts_with("refs/") { name } else { format!("refs/heads/{name}") }
}

fn wrong(flag: &'static str, value: &str, problem: &str) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), problem: problem.to_owned() }
}

/// Returns the value of a list for one of `count` remotes; a single value is for all.
fn one_of(
    flag: &'static str,
    map: &PerBranch,
    branch: &str,
    at: usize,
    count: usize,
) -> Result<Option<String>, ConfigError> {
    let Some(text) = map.of(branch) else { return Ok(None) };
    let mut values = split(text);
    match values.len() {
        1 => Ok(values.pop()),
        found if found == count => Ok(Some(values.swap_remove(at))),
        found => Err(wrong(flag, text, &format!("{found} values for {count} remotes"))),
    }
}

/// Splits at colons that no backslash escapes.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ':' && !escaped {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("the list starts with one part").push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

const EXAMPLES: &str = "Examples:
  gitcd pull --repo=store.git --remote-names=origin
  gitcd pull --repo=store.git --remote-names=origin:desk --push-after-merges=true --pull-ticker-duration=15s
  gitcd pull --repo=store.git --remote-names=origin --token-file=token --push-after-merges=true";

/// `gitcd pull`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    flags: Flags,
    #[arg(
        long,
        env = "GITCD_LISTEN_METRICS_URLS",
        value_name = "MAP",
        help = "URLs that serve /status, /metrics and /health, separated by ';' [default: none]"
    )]
    listen_metrics_urls: Option<String>,
    #[command(flatten)]
    tls: TlsFlags,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    args.flags.warn();
    let configs = configs(args)?;
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(pull(configs));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

fn configs(args: &Args) -> anyhow::Result<Vec<server::Config>> {
    let branches = args.common.branches()?;
    let remotes = args.flags.read()?;
    let pages = per_branch("listen-metrics-urls", args.listen_metrics_urls.as_deref())?;
    let files = args.tls.read()?;
    let names = branches.names(&[remotes.names(), &pages]);
    branches.check(&names)?;
    let mut configs = Vec::new();
    for name in &names {
        let mut pull = remotes.of(name)?;
        pull.by_hand = pull.interval.is_none();
        // Others may follow the branch for the merged result.
        pull.echoes_after = None;
        if pull.remotes.is_empty() {
            anyhow::bail!("branch {name:?} has no remote: set one with --remote-names={name}=origin");
        }
        let flush_interval = pull.interval.map(|_| FLUSH_INTERVAL);
        configs.push(server::Config {
            listen_pages: listen_urls("listen-metrics-urls", pages.of(name).unwrap_or_default())?,
            limits: api::Limits { max_request_bytes: 0, max_txn_ops: 0, quota_backend_bytes: 0 },
            committer: committer::Settings { flush_interval, ..committer::Settings::default() },
            tls: files.of_branch(name)?,
            pull,
            ..server::Config::new(branches.branch(name))
        });
    }
    Ok(configs)
}

async fn pull(configs: Vec<server::Config>) -> anyhow::Result<()> {
    let stop = Stop::by_signal()?;
    let once = configs.iter().all(|config| config.pull.interval.is_none());
    let (mut servers, mut shown, mut outcome) = (Vec::new(), Vec::new(), Outcome::default());
    for config in configs {
        let name = config.branch.name.clone();
        match Box::pin(Server::start_unless(config, stop.receiver())).await {
            Ok(server) => {
                shown.extend(Fetches::of(&server));
                servers.push((name, server));
            }
            Err(ServeError::Stopped) => break,
            Err(error) => {
                outcome.fail(anyhow::Error::from(error).context(format!("cannot open branch {name:?}")));
                break;
            }
        }
    }
    if once && outcome.is_ok() {
        let is_stopped = tokio::select! {
            biased;
            () = stop.requested() => true,
            () = pull_once(&servers, &mut outcome) => false,
        };
        if is_stopped {
            outcome.fail(anyhow!("stopped by a signal before all remotes were pulled"));
        }
    } else if outcome.is_ok() {
        stop.requested().await;
        tracing::info!("stopping: committing");
    }
    drop(shown);
    for (name, server) in servers {
        if let Err(error) = server.stop().await {
            outcome.fail(anyhow::Error::from(error).context(format!("branch {name:?}")));
        }
    }
    outcome.end()
}

/// Pulls all remotes of all branches.
async fn pull_once(servers: &[(String, Server)], outcome: &mut Outcome) {
    for (name, server) in servers {
        let puller = server.puller();
        for remote in puller.remotes() {
            if let Err(error) = puller.pull(remote).await {
                outcome.fail(anyhow::Error::from(error).context(format!("branch {name:?}")));
            } else if let Some(status) = puller.statuses().all().get(&remote.name) {
                let seen = status.seen.as_deref().unwrap_or("nothing");
                tracing::info!(branch = name, remote = remote.name, seen, conflicts = status.conflicts, "pulled");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn read(line: &[&str]) -> Result<Config, ConfigError> {
        let line = <Line as clap::Parser>::try_parse_from([&["gitcd"], line].concat()).unwrap();
        line.flags.read()?.of("default")
    }

    #[test]
    fn each_remote_gets_its_value_or_the_one_for_all() {
        let config = read(&[
            "--remote-names=default=origin:desk",
            "--remote-data-reference-names=default=refs/heads/up:work",
            "--merge-conflict-resolutions=default=1:2",
            "--merge-retention-policies-exclude=default=a\\:b:^$",
            "--push-after-merges=default=true",
            "--pull-ticker-duration=15s",
        ])
        .unwrap();
        assert_eq!(config.interval, Some(Duration::from_secs(15)));
        let [origin, desk] = &config.remotes[..] else { panic!("{config:?}") };
        assert_eq!((&*origin.data_reference, origin.policy), ("refs/heads/up", Policy::Ours));
        assert_eq!((&*desk.data_reference, desk.policy), ("refs/heads/work", Policy::Theirs));
        assert!(!origin.scope.covers(b"xa:b") && desk.scope.covers(b"xa:b"));
        assert!(origin.push_after_merge && desk.push_after_merge && origin.fast_forward && desk.fetch);
    }

    #[test]
    fn a_wrong_list_is_refused_with_the_flag() {
        for (line, flag) in [
            (&["--remote-names=a:b", "--no-fetches=true:false:true"][..], "no-fetches"),
            (&["--remote-names=a", "--merge-conflict-resolutions=3"], "merge-conflict-resolutions"),
            (&["--remote-names=a:a"], "remote-names"),
            (&["--remote-names=a", "--merge-retention-policies-include=("], "merge-retention-policies-include"),
        ] {
            assert_eq!(read(line).unwrap_err().flag(), flag);
        }
    }
}
