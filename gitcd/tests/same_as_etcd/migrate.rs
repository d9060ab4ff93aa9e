//! A running etcd becomes a branch, and a branch becomes an etcd.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::{AlarmRequest, AlarmType, PutRequest, TxnRequest};
use tokio::task::JoinHandle;
use tonic::Code;

use crate::export::{fill, restore, same, text};
use crate::support::build::{all, compact, delete, get, grant, ops, put, revoke};
use crate::support::{Client, Kind, Launch, Server};

/// The pause of each writer, so that a test compares thousands of events, and not tens of thousands.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs `gitcd migrate import` into the folder's `repo.git`.
async fn import(etcd: &Server, folder: &Path, flags: &[&str]) -> Output {
    let mut command = command(etcd, folder, flags);
    tokio::task::spawn_blocking(move || command.output().expect("gitcd can be started")).await.expect("no panic")
}

fn command(etcd: &Server, folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command
        .args(["migrate", "import", "--key-prefixes=/registry"])
        .arg(format!("--endpoints=http://127.0.0.1:1,http://{}", etcd.address()))
        .arg(format!("--repo={}", folder.join("repo.git").display()))
        .args(flags);
    command
}

/// The output of a command that succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The error of a command that failed.
#[track_caller]
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Clients that write until they are refused.
async fn writers(etcd: &Server) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let channel = etcd.channel().await;
        tasks.push(tokio::spawn(async move {
            for number in 0.. {
                if write(&channel, writer, number).await.is_err() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }));
    }
    tasks
}

/// Puts, transactions, deletions, and leases that are granted, used and revoked.
async fn write(channel: &tonic::transport::Channel, writer: usize, number: usize) -> Result<(), tonic::Status> {
    use gitcd::proto::etcdserverpb::kv_client::KvClient;
    use gitcd::proto::etcdserverpb::lease_client::LeaseClient;
    let (mut keys, mut leases) = (KvClient::new(channel.clone()), LeaseClient::new(channel.clone()));
    let key = |number: usize| format!("/registry/w{writer}/{:03}", number % 50);
    let value = "v".repeat(number % 700);
    match number % 6 {
        0 => {
            let several =
                [put(&key(number), &value), put(&key(number + 7), "z"), put(&format!("/other/{writer}"), "y")];
            keys.txn(all(several)).await?;
        }
        1 => drop(keys.delete_range(delete(&key(number + 3))).await?),
        2 => {
            let id = (writer * 1_000_000 + number + 1) as i64;
            leases.lease_grant(grant(id, 300)).await?;
            keys.put(PutRequest { lease: id, ..put(&key(number), &value) }).await?;
            if number.is_multiple_of(4) {
                leases.lease_revoke(revoke(id)).await?;
            }
        }
        3 => {
            let mut both = ops([put(&key(number), &value)]);
            both.extend(ops([delete(&key(number + 1))]));
            keys.txn(TxnRequest { success: both, ..TxnRequest::default() }).await?;
        }
        _ => drop(keys.put(put(&key(number), &value)).await?),
    }
    Ok(())
}

async fn revision(client: &Client) -> i64 {
    client.range(get("/registry/none")).await.ok().header.expect("a header").revision
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_under_load_becomes_a_branch_with_the_same_revisions() {
    let etcd = Server::start(Kind::Etcd).await;
    let client = etcd.client().await;
    fill(&client).await;
    client.compact(compact(40)).await.ok();
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let writers = writers(&etcd).await;
    let first = printed(&import(&etcd, folder.path(), &[]).await);
    assert!(first.contains("copied: revision"), "{first}");

    // The copy is not served before the cut-over.
    let mut early = Launch::new(Kind::Gitcd).folder(folder.path()).spawn();
    let exit = early.exit().await;
    assert!(exit.output.contains("end the import with `gitcd migrate import --cut-over` first"), "{}", exit.output);

    // Killed at any moment, it continues.
    for _ in 0..3 {
        let before = revision(&client).await;
        let mut killed = command(&etcd, folder.path(), &["--follow"]).spawn().expect("gitcd can be started");
        crate::support::eventually("writes while the copy follows", async || {
            (revision(&client).await > before + 200).then_some(())
        })
        .await;
        killed.kill().expect("the child is ours");
        killed.wait().expect("the child is ours");
    }
    let last = printed(&import(&etcd, folder.path(), &["--cut-over"]).await);
    assert!(last.contains("cut over: revision") && last.contains("the same in both"), "{last}");
    // The writers were refused.
    for ended in futures::future::join_all(writers).await {
        ended.expect("no panic");
    }
    client.put(put("/registry/late", "1")).await.refused(Code::DataLoss);
    client.delete_range(delete("/registry/a")).await.refused(Code::DataLoss);
    client.lease_grant(grant(99, 300)).await.refused(Code::DataLoss);
    client.compact(compact(41)).await.refused(Code::DataLoss);

    let gitcd = Launch::new(Kind::Gitcd).folder(folder.path()).start().await;
    let served = gitcd.client().await;
    let newest = revision(&client).await;
    same(&client, &served, 40, newest).await;

    // And back.
    let file = folder.path().join("exported");
    let mut export = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    export.args(["migrate", "export", text(&file), &format!("--endpoints=http://{}", gitcd.address())]);
    let exported = tokio::task::spawn_blocking(move || export.output().expect("gitcd can be started"));
    let exported = printed(&exported.await.expect("no panic"));
    assert!(exported.contains(&format!("revision {newest}")), "{exported}");
    let restored = restore(&file, folder.path()).await;
    same(&client, &restored.client().await, 40, newest).await;

    // After a return to etcd, its state is that of the cut-over.
    let disarm =
        AlarmRequest { action: AlarmAction::Deactivate.into(), alarm: AlarmType::Corrupt.into(), member_id: 0 };
    let member_id = client.alarm(AlarmRequest::default()).await.ok().alarms[0].member_id;
    client.alarm(AlarmRequest { member_id, ..disarm }).await.ok();
    let put = client.put(put("/registry/late", "1")).await.ok();
    assert_eq!(put.header.expect("a header").revision, newest + 1);
}

/// More revisions at once than are written at the same time, and more than a watch of etcd sends in one response.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_copied_in_its_order() {
    let etcd = Server::start(Kind::Etcd).await;
    let (client, folder) = (etcd.client().await, tempfile::tempdir().expect("the temporary folder is writable"));
    client.put(put("/registry/a", "1")).await.ok();
    printed(&import(&etcd, folder.path(), &[]).await);
    let channel = etcd.channel().await;
    for number in 0..3000 {
        write(&channel, 0, number).await.expect("etcd accepts writes");
    }
    printed(&import(&etcd, folder.path(), &["--cut-over"]).await);
    let gitcd = Launch::new(Kind::Gitcd).folder(folder.path()).start().await;
    let newest = revision(&client).await;
    same(&client, &gitcd.client().await, 1, newest).await;
}

/// Interrupted or killed while etcd refuses writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_over_that_was_killed_is_ended_by_the_next_one() {
    let etcd = Server::start(Kind::Etcd).await;
    let (client, folder) = (etcd.client().await, tempfile::tempdir().expect("the temporary folder is writable"));
    client.put(put("/registry/a", "1")).await.ok();
    printed(&import(&etcd, folder.path(), &[]).await);
    let member_id = client.range(get("/registry/a")).await.ok().header.expect("a header").member_id;
    let alarm = AlarmRequest { action: AlarmAction::Activate.into(), alarm: AlarmType::Corrupt.into(), member_id };
    client.alarm(alarm).await.ok();
    let unknown = refused(&import(&etcd, folder.path(), &["--cut-over"]).await);
    assert!(unknown.contains("of etcd has the alarm CORRUPT"), "{unknown}");
    // What is recorded before the alarm is raised.
    let mark = folder.path().join("repo.git/gitcd/default/importing");
    let mut origin: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&mark).expect("it exists")).expect("JSON");
    origin["frozen_member"] = member_id.into();
    std::fs::write(&mark, origin.to_string()).expect("it is writable");
    let output = import(&etcd, folder.path(), &[]).await;
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed(&output).contains("copied") && warning.contains("since an earlier cut-over"), "{warning}");
    client.put(put("/registry/a", "2")).await.refused(Code::DataLoss);
    let ended = printed(&import(&etcd, folder.path(), &["--cut-over"]).await);
    assert!(ended.contains("cut over: revision 2"), "{ended}");
    let gitcd = Launch::new(Kind::Gitcd).folder(folder.path()).start().await;
    assert_eq!(revision(&gitcd.client().await).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_accepts_writes_again_if_the_copy_turns_out_to_be_wrong() {
    let etcd = Server::start(Kind::Etcd).await;
    let (client, folder) = (etcd.client().await, tempfile::tempdir().expect("the temporary folder is writable"));
    client.put(put("/registry/a", "1")).await.ok();
    printed(&import(&etcd, folder.path(), &[]).await);
    // Another value at the next revision, as only an error could write it.
    let mut branch = gitcd::git::branch::Config::named(folder.path().join("repo.git"), "default");
    branch.keys = gitcd::keyspace::KeySpace::new("/registry", Vec::<String>::new());
    let config = gitcd::server::Config { imports: true, ..gitcd::server::Config::new(branch) };
    let server = gitcd::server::Server::start(config).await.expect("the branch can be opened");
    let wrong = gitcd::store::txn::Put {
        key: "/registry/a".into(),
        value: Some("wrong".into()),
        lease: Some(0),
        previous: false,
    };
    server.store().execute(gitcd::store::txn::Op::Put(wrong), None).await.expect("the store accepts writes");
    server.stop().await.expect("everything is committed");

    client.put(put("/registry/a", "2")).await.ok();
    let different = refused(&import(&etcd, folder.path(), &["--cut-over"]).await);
    assert!(different.contains("at revision 3, the branch has 1 keys"), "{different}");
    client.put(put("/registry/a", "3")).await.ok();
    let mut early = Launch::new(Kind::Gitcd).folder(folder.path()).spawn();
    assert!(early.exit().await.output.contains("is being imported from an etcd"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_is_refused_with_the_reason() {
    let (etcd, other) = (Server::start(Kind::Etcd).await, Server::start(Kind::Etcd).await);
    let (client, folder) = (etcd.client().await, tempfile::tempdir().expect("the temporary folder is writable"));
    client.put(put("/registry/a", "1")).await.ok();
    printed(&import(&etcd, folder.path(), &[]).await);

    client.put(put("/registry/a", "2")).await.ok();
    client.put(put("/registry/a", "3")).await.ok();
    let mistaken = refused(&import(&other, folder.path(), &[]).await);
    assert!(mistaken.contains("and the branch is being imported from"), "{mistaken}");
    client.compact(compact(4)).await.ok();
    let compacted = refused(&import(&etcd, folder.path(), &[]).await);
    assert!(compacted.contains("remove the branch, and import again"), "{compacted}");

    let taken = tempfile::tempdir().expect("the temporary folder is writable");
    crate::support::Repository::init(&taken.path().join("repo.git"));
    let taken = refused(&import(&etcd, taken.path(), &[]).await);
    assert!(taken.contains("exists already, and is not being imported"), "{taken}");

    let (unreachable, folder) = (Server::start(Kind::Etcd).await, tempfile::tempdir().expect("it is writable"));
    let address = unreachable.address();
    drop(unreachable);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(["migrate", "import", &format!("--endpoints=http://{address}")]);
    command.arg(format!("--repo={}", folder.path().join("repo.git").display()));
    let output = tokio::task::spawn_blocking(move || command.output().expect("gitcd can be started"));
    let unreachable = refused(&output.await.expect("no panic"));
    assert!(unreachable.contains(&format!("cannot connect to etcd at http://{address}")), "{unreachable}");
    // An alarm of etcd's own is not taken for that of a cut-over.
    let member_id = client.range(get("/registry/a")).await.ok().header.expect("a header").member_id;
    let alarm = AlarmRequest { action: AlarmAction::Activate.into(), alarm: AlarmType::Nospace.into(), member_id };
    client.alarm(alarm).await.ok();
    let alarmed = refused(&import(&etcd, folder.path(), &["--cut-over"]).await);
    assert!(alarmed.contains("of etcd has the alarm NOSPACE"), "{alarmed}");
}
