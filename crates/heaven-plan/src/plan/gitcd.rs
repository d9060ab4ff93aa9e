//! The steps of gitcd: preparing each remote, initializing the branch, and serving it or merging into it.

use std::time::Duration;

use trishanku_api::Gitcd;

use super::branch::{ALL, Branch, Followed, NONE};
use super::replicas::{self, REPLICA};
use super::{
    CREDENTIALS, Content, ENTRY_POINTS, EntryPoints, Environment, Folder, GIT_PRE, GITCD_CONFIG, HOME, Images, Look,
    Mount, Place, Plan, PlanError, Probe, Probes, Resources, Run, STORE, Step,
};
use crate::names;

/// Keys that kube-apiserver keeps under a lease or renews all the time. They are served like all others, but in the
/// history they would only hide what people did.
const EPHEMERAL: &str =
    "/registry/events:/registry/masterleases:/registry/peerserverleases:/registry/leases/kube-system/apiserver-*";
/// The prefix of all keys of a kube-apiserver.
const PREFIX: &str = "/registry";
/// The default poll interval of remotes.
const INTERVAL: &str = "10s";
/// Keeps the duration of a start independent of the cluster's age: older history is left out.
const DEPTH: &str = "--depth=1000";
/// The default port of the Git host.
pub(crate) const HOST_PORT: i32 = 2480;
const HOST_TOKENS: &str = "trishanku-host-tokens";
const HOST_TLS: &str = "trishanku-host-tls";
/// The name of the step that initializes the branch.
const INIT: &str = "gitcd-init";
/// The program, in its image.
const PROGRAM: &str = "gitcd";

/// Returns the plan up to the initialized branch.
pub(super) fn plan(
    name: &str,
    gitcd: &Gitcd,
    branch: &Branch,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
    map: &str,
) -> Plan {
    let storage = gitcd.storage.clone().unwrap_or_default();
    let content = match storage.volume_claim {
        Some(claim) if claim.name.is_none() && place.replica.is_some() => Content::KeptByReplica,
        Some(claim) => Content::Kept { claim: claim.name.unwrap_or_else(|| names::repository_claim(name)) },
        None => Content::Empty { size_limit: storage.size_limit },
    };
    let mut folders = vec![Folder { name: HOME.to_owned(), content }];
    if entry_points.git_pre || entry_points.gitcd_config {
        folders.push(Folder { name: ENTRY_POINTS.to_owned(), content: Content::EntryPoints { name: map.to_owned() } });
    }
    if let Some(secret) = &gitcd.credentials_secret_name {
        let content = Content::Secret { name: secret.clone(), items: Vec::new() };
        folders.push(Folder { name: CREDENTIALS.to_owned(), content });
    }
    let mut steps: Vec<_> = (branch.remotes.iter().enumerate())
        .map(|(at, remote)| prepare(at, Some(remote), gitcd, branch, images, place, entry_points))
        .collect();
    if steps.is_empty() && entry_points.git_pre {
        steps.push(prepare(0, None, gitcd, branch, images, place, entry_points));
    }
    steps.push(Step {
        arguments: [vec!["init".to_owned(), DEPTH.to_owned()], of_branch(branch, place)].concat(),
        ..step(INIT, gitcd, images, place)
    });
    Plan { folders, steps, pull_secret: gitcd.image_pull_secret_name.clone(), ..Plan::default() }
}

/// Makes `gitcd-init` create the certificates of the store and its clients. They live as long as the pod, and nothing
/// outside its own containers has them.
pub(super) fn create_certificates(plan: &mut Plan, place: &Place) {
    let Some(path) = place.trust.created() else { return };
    plan.folders.push(Folder { name: STORE.to_owned(), content: Content::Memory });
    let step = plan.steps.iter_mut().rfind(|step| step.name == INIT).expect("a plan initializes its branch");
    step.arguments.push(format!("--loopback-certificates={path}"));
    step.mounts.push(Mount::write(STORE, path));
}

/// Sets the committer.
pub(super) fn commits_as(step: &mut Step, committer: &str) {
    if step.name == INIT {
        step.arguments.push(format!("--committer-name={committer}"));
    }
}

/// A step that runs gitcd once on the repository.
fn step(name: impl Into<String>, gitcd: &Gitcd, images: &Images, place: &Place) -> Step {
    Step {
        name: name.into(),
        image: Images::choose(gitcd.gitcd_image.as_ref(), &images.gitcd),
        program: PROGRAM.to_owned(),
        arguments: Vec::new(),
        environment: [("HOME".to_owned(), place.home.clone())].into(),
        mounts: vec![Mount::write(HOME, &place.home)],
        run: Run::Once,
        resources: Resources::of(gitcd.resources.as_ref()),
        writable_root: false,
    }
}

fn of_branch(branch: &Branch, place: &Place) -> Vec<String> {
    vec![
        format!("--repo={}", place.repository()),
        format!("--data-reference-names=default={}", branch.data),
        format!("--metadata-reference-names=default={}", branch.metadata),
        format!("--key-prefixes=default={PREFIX}"),
        format!("--ephemeral-prefixes=default={EPHEMERAL}"),
    ]
}

/// Prepares the repository for one remote, with gitcd or a script of the user; both read the same variables.
fn prepare(
    at: usize,
    remote: Option<&Followed>,
    gitcd: &Gitcd,
    branch: &Branch,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Step {
    let name = match remote {
        Some(remote) if at > 0 => format!("git-pre-{}", remote.name),
        _ => "git-pre".to_owned(),
    };
    let mut variables = vec![
        ("REPO", place.repository()),
        ("DATA_REFERENCE_NAMES", format!("default={}", branch.data)),
        ("METADATA_REFERENCE_NAMES", format!("default={}", branch.metadata)),
        ("FAIL_ON_NO_BRANCH", (at == 0 && branch.must_be_there).to_string()),
        ("CLONE", (at == 0).to_string()),
        // If all manifests are applied at once, the order in which branches are created is undefined.
        ("WAIT", "1m".to_owned()),
    ];
    if let Some(remote) = remote {
        variables.extend([
            ("REMOTE_NAME", remote.name.clone()),
            ("REMOTE_URL", remote.url.clone()),
            ("REMOTE_DATA_REFERENCE_NAMES", format!("default={}", remote.data)),
            ("FAIL_ON_NO_REMOTE_BRANCH", remote.must_be_there.to_string()),
            // With the whole remote branch, unless only a part of its keys is merged.
            ("BEGIN_WITH_REMOTE_BRANCH", (at == 0 && remote.is_whole()).to_string()),
        ]);
    }
    let mut step = step(name, gitcd, images, place);
    if gitcd.credentials_secret_name.is_some() {
        let path = place.secret("credentials");
        variables.push(("CREDENTIALS_FOLDER", path.clone()));
        step.mounts.push(Mount::read(CREDENTIALS, path));
    }
    if gitcd.allow_plain_http_credentials == Some(true) {
        variables.push(("ALLOW_PLAIN_HTTP_CREDENTIALS", "true".to_owned()));
    }
    let variables: Environment = variables.into_iter().map(|(name, value)| (format!("GITCD_{name}"), value)).collect();
    step.environment.extend(variables);
    if entry_points.git_pre {
        step.image = Images::choose(gitcd.git_image.as_ref(), &images.git);
        step.program = format!("{}/{GIT_PRE}", place.entry_points);
        step.mounts.push(Mount::read(ENTRY_POINTS, &place.entry_points));
        step.writable_root = true;
    } else {
        step.arguments = vec!["prepare".to_owned()];
    }
    step
}

/// Serves the branch to kube-apiserver, and pulls from its remotes.
pub(super) fn serve(
    name: &str,
    gitcd: &Gitcd,
    branch: &Branch,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
) -> Result<Step, PlanError> {
    let mut serve = step("gitcd", gitcd, images, place);
    serve.arguments = common("serve", branch, place, entry_points, &mut serve.mounts);
    let replica = if replicas::have_branches(branch) { format!("/{REPLICA}") } else { String::new() };
    serve.arguments.push(format!("--committer-name={name}{replica}"));
    for flag in ["listen-urls", "advertise-client-urls"] {
        serve.arguments.push(format!("--{flag}=default={}", place.gitcd()));
    }
    let ((cert, key), authority) = (place.trust.store(), place.trust.store_authority());
    serve.arguments.extend([
        format!("--tls-cert=default={cert}"),
        format!("--tls-key=default={key}"),
        format!("--tls-trusted-ca-certs=default={authority}"),
    ]);
    serve.mounts.extend(Mount::store(place));
    let (cert, key) = place.trust.store_client();
    let asks = [("endpoint", place.gitcd()), ("cacert", authority), ("cert", cert), ("key", key)];
    // As defaults, too, for `kubectl exec … gitcd status`.
    let defaults = asks.iter().map(|(name, value)| (format!("GITCD_{}", name.to_uppercase()), value.clone()));
    serve.environment.extend(defaults);
    let follows = gitcd.pull.is_some() || gitcd.writer_lease.is_some();
    if follows && !branch.remotes.is_empty() {
        serve.arguments.extend(follow(gitcd, branch, place, &mut serve.mounts));
    }
    if let (Some(lease), Some(first)) = (&gitcd.writer_lease, branch.remotes.first()) {
        serve.arguments.push(format!("--writer-lease={lease}"));
        serve.arguments.push(format!("--writer-lease-remote=default={}", first.name));
        // kube-apiserver needs seconds to start. It does so while another pod is the writer, and is the only client of
        // this gitcd.
        serve.arguments.push("--hot-standby".to_owned());
    }
    let mut port = None;
    if let Some(number) = host_port(gitcd)? {
        let tokens = place.secret("host-tokens");
        let tls = gitcd.host.as_ref().and_then(|host| host.tls_secret_name.as_ref()).map(|_| place.secret("host-tls"));
        let scheme = if tls.is_some() { "https" } else { "http" };
        serve.arguments.push(format!("--host-listen-urls={scheme}://{}:{number}", place.address));
        serve.arguments.push(format!("--host-tokens={tokens}/tokens.yaml"));
        serve.mounts.push(Mount::read(HOST_TOKENS, tokens));
        if let Some(path) = tls {
            // `ca.crt` of the Secret is for clients of the host. As a flag, it would require certificates of them.
            serve.arguments.push(format!("--host-tls-cert={path}/tls.crt"));
            serve.arguments.push(format!("--host-tls-key={path}/tls.key"));
            serve.mounts.push(Mount::read(HOST_TLS, path));
        }
        port = Some(("git", number));
    }
    let ask = |what: Option<&str>| {
        let asks = asks.iter().map(|(name, value)| format!("--{name}={value}"));
        let ask = ["gitcd", "health"].map(ToOwned::to_owned).into_iter().chain(asks);
        Look::Run(ask.chain(what.map(ToOwned::to_owned)).collect())
    };
    let (second, patience) = (Duration::from_secs(1), Duration::from_secs(5));
    // A large branch is read from Git once; with a lease, gitcd also waits until another writer has created or pushed the
    // branch.
    let waits = waits(gitcd);
    let (failures, startup) = if waits { (u16::MAX, Some("--startup")) } else { (600, None) };
    serve.run = Run::Server(Probes {
        port,
        started: Probe { look: ask(startup), every: second, patience, failures },
        alive: Some(Probe { look: ask(Some("--live")), every: Duration::from_secs(10), patience, failures: 6 }),
        ready: None,
    });
    Ok(serve)
}

/// Whether other pods may be the writer of the branch.
pub(super) fn waits(gitcd: &Gitcd) -> bool {
    gitcd.writer_lease.is_some()
}

/// The port of the Git host, if there is one.
pub(super) fn host_port(gitcd: &Gitcd) -> Result<Option<u16>, PlanError> {
    let Some(host) = &gitcd.host else { return Ok(None) };
    let number = host.port.unwrap_or(HOST_PORT);
    let is_port = u16::try_from(number).ok().filter(|number| *number > 0);
    let problem = "is not a port: use 1 to 65535";
    is_port.map(Some).ok_or_else(|| PlanError::value("gitcd.host.port", &number.to_string(), problem))
}

/// The folders that only the Git host needs.
pub(super) fn host_folders(gitcd: &Gitcd) -> Vec<Folder> {
    let Some(host) = &gitcd.host else { return Vec::new() };
    let folder = |name: &str, secret: &str, items| Folder {
        name: name.to_owned(),
        content: Content::Secret { name: secret.to_owned(), items },
    };
    let tokens = folder(HOST_TOKENS, &host.tokens_secret_name, Vec::new());
    let pair = || ["tls.crt", "tls.key"].map(|file| (file, file)).to_vec();
    let tls = host.tls_secret_name.as_ref().map(|secret| folder(HOST_TLS, secret, pair()));
    [tokens].into_iter().chain(tls).collect()
}

/// Refuses a certificate of the heaven for its Git host: it is not for the host's names.
pub(super) fn check_host_certificate(gitcd: &Gitcd, certificates: &names::Certificates) -> Result<(), PlanError> {
    let Some(secret) = gitcd.host.as_ref().and_then(|host| host.tls_secret_name.as_deref()) else { return Ok(()) };
    let field = "gitcd.host.tlsSecretName";
    if secret.is_empty() {
        let problem = "is not the name of a Secret: leave it out for a host without TLS";
        return Err(PlanError::value(field, secret, problem));
    }
    if certificates.all().contains(&secret) {
        let problem = "has certificates of the heaven's kube-apiserver: name a Secret with a certificate for the host's own \
                       names, such as of its Service";
        return Err(PlanError::value(field, secret, problem));
    }
    Ok(())
}

/// Merges remotes into the branch, without serving it.
pub(super) fn pull(
    gitcd: &Gitcd,
    branch: &Branch,
    images: &Images,
    place: &Place,
    entry_points: &EntryPoints,
    committer: &str,
) -> Result<Step, PlanError> {
    if branch.remotes.is_empty() {
        return Err(PlanError::value("gitcd.git.remotes", "[]", "has nothing to merge: add the branches to merge"));
    }
    let mut pull = step("gitcd", gitcd, images, place);
    pull.arguments = common("pull", branch, place, entry_points, &mut pull.mounts);
    pull.arguments.push(format!("--committer-name={committer}"));
    pull.arguments.extend(follow(gitcd, branch, place, &mut pull.mounts));
    pull.run = Run::Alone { alive: None };
    Ok(pull)
}

fn common(
    command: &str,
    branch: &Branch,
    place: &Place,
    entry_points: &EntryPoints,
    mounts: &mut Vec<Mount>,
) -> Vec<String> {
    let mut arguments = vec![command.to_owned()];
    if entry_points.gitcd_config {
        arguments.push(format!("--config={}/{GITCD_CONFIG}", place.entry_points));
        mounts.push(Mount::read(ENTRY_POINTS, &place.entry_points));
    }
    arguments.extend(of_branch(branch, place));
    arguments
}

fn follow(gitcd: &Gitcd, branch: &Branch, place: &Place, mounts: &mut Vec<Mount>) -> Vec<String> {
    let pull = gitcd.pull.clone().unwrap_or_default();
    let mut flags = vec![
        format!("--remote-names=default={}", branch.list(|remote| remote.name.clone())),
        format!("--remote-data-reference-names=default={}", branch.list(|remote| remote.data.clone())),
        format!("--merge-conflict-resolutions=default={}", branch.list(|remote| remote.resolution.to_string())),
        format!("--push-after-merges=default={}", pull.push_after_merge.unwrap_or(true)),
        format!("--push-on-pull-failures=default={}", pull.push_on_pull_failure.unwrap_or_default()),
        format!(
            "--pull-ticker-duration={}",
            pull.ticker_duration.as_deref().filter(|of| *of != "0").unwrap_or(INTERVAL)
        ),
    ];
    if branch.remotes.iter().any(|remote| remote.include.is_some()) {
        let include = branch.list(|remote| remote.include.clone().unwrap_or_else(|| ALL.to_owned()));
        flags.push(format!("--merge-retention-policies-include=default={include}"));
    }
    if branch.remotes.iter().any(|remote| remote.exclude.is_some()) {
        let exclude = branch.list(|remote| remote.exclude.clone().unwrap_or_else(|| NONE.to_owned()));
        flags.push(format!("--merge-retention-policies-exclude=default={exclude}"));
    }
    if gitcd.credentials_secret_name.is_some() {
        let path = place.secret("credentials");
        flags.push(format!("--credentials-folder={path}"));
        mounts.push(Mount::read(CREDENTIALS, path));
    }
    if gitcd.allow_plain_http_credentials == Some(true) {
        flags.push("--allow-plain-http-credentials=true".to_owned());
    }
    flags
}
