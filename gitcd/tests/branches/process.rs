//! A branch served by a separate process, which is killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gitcd::merge::Policy;
use gitcd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::request_op::Request;
use gitcd::proto::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};
use gitcd::pull::remote::Remote;
use tonic::transport::Channel;

use crate::world::Branch;

/// An upper bound for any wait, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `gitcd serve`, killed on drop.
pub(crate) struct Process {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Drop for Process {
    /// SIGKILL: nothing is flushed, no handler runs.
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

impl Process {
    /// Serves a stopped branch with its own configuration, and continuously merges these remotes, each with its scope's
    /// expressions.
    pub(crate) fn start(branch: &Branch, remotes: &[(&Remote, [&str; 2])]) -> Self {
        assert!(branch.server.is_none(), "the branch already has a server");
        let name = &branch.config.branch.name;
        let each = |flag: &str, value: fn(&(&Remote, [&str; 2])) -> String| {
            format!("--{flag}={name}={}", remotes.iter().map(value).collect::<Vec<_>>().join(":"))
        };
        let address = format!("http://{}", branch.address());
        let mut flags = vec![
            format!("--repo={}", branch.path().display()),
            format!("--data-reference-names={name}={}", branch.config.branch.data_reference),
            format!("--metadata-reference-names={name}={}", branch.config.branch.metadata_reference),
            format!("--key-prefixes={name}=/registry"),
            format!("--ephemeral-prefixes={name}=/registry/events"),
            format!("--committer-name={}", branch.config.branch.committer_name),
            format!("--committer-email={}", branch.config.branch.committer_email),
            format!("--listen-urls={name}={address}"),
            format!("--journal-segment-bytes={}", branch.config.journal_segment_bytes),
        ];
        if !remotes.is_empty() {
            flags.extend([
                "--pull-ticker-duration=10ms".to_owned(),
                each("remote-names", |(remote, _)| remote.name.clone()),
                each("remote-data-reference-names", |(remote, _)| remote.data_reference.clone()),
                each("merge-conflict-resolutions", |(remote, _)| number(remote.policy).to_owned()),
                each("merge-retention-policies-include", |(_, [include, _])| (*include).to_owned()),
                each("merge-retention-policies-exclude", |(_, [_, exclude])| (*exclude).to_owned()),
            ]);
        }
        let log = branch.path().with_extension("log");
        let output = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gitcd"))
            .arg("serve")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, address, log }
    }

    /// Connects a client, retrying until the server listens.
    pub(crate) async fn client(&mut self) -> Client {
        let start = Instant::now();
        loop {
            if let Ok(client) = KvClient::connect(self.address.clone()).await {
                return Client(client);
            }
            let ended = self.child.try_wait().unwrap();
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(ended.is_none(), "gitcd serve exited at startup, {ended:?}:\n{}", log());
            assert!(start.elapsed() < PATIENCE, "gitcd serve is not listening after {PATIENCE:?}:\n{}", log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn number(policy: Policy) -> &'static str {
    match policy {
        Policy::Later => "0",
        Policy::Ours => "1",
        Policy::Theirs => "2",
    }
}

/// A key-value client of a [`Process`].
#[derive(Clone)]
pub(crate) struct Client(KvClient<Channel>);

impl Client {
    /// Edits a key's current value; retries if a merge changes it concurrently.
    pub(crate) async fn edit(
        &mut self,
        key: &str,
        edit: impl Fn(Option<String>) -> String,
    ) -> Result<(), tonic::Status> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        loop {
            let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            let found = self.0.range(request).await?.into_inner().kvs.into_iter().next();
            let since = found.as_ref().map_or(0, |pair| pair.mod_revision);
            let value = edit(found.map(|pair| String::from_utf8(pair.value.to_vec()).unwrap()));
            let unchanged = Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: key.clone(),
                target_union: Some(TargetUnion::ModRevision(since)),
                ..Compare::default()
            };
            let put = PutRequest { key: key.clone(), value: value.into(), ..PutRequest::default() };
            let request = TxnRequest {
                compare: vec![unchanged],
                success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
                ..TxnRequest::default()
            };
            if self.0.txn(request).await?.into_inner().succeeded {
                return Ok(());
            }
        }
    }
}
