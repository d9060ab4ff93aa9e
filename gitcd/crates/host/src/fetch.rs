//! What clients read, answered by `git upload-pack`, or without it if they ask for little.

mod plain;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use gitcd_core::program::{Program, Running, complaint};
use gitcd_repo::pkt_line;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::Inner;
use super::input::Input;
use super::problem::Problem;
use super::service::{Service, answer};

/// A negotiation names references and commits that both sides have.
const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// What is read at once, and the size of the portions of an answer.
const PORTION_BYTES: usize = 64 << 10;

/// `git upload-pack`. Whoever may read a repository may read every object in it: protocol version 2 allows no less, and a partial clone
/// asks for single ones.
fn upload_pack(
    program: &Program,
    repository: &Path,
    protocol: Option<&str>,
    idle: Duration,
    options: &[&str],
) -> Command {
    let timeout = format!("--timeout={}", idle.as_secs().max(1));
    let settings = ["-c", "uploadpack.allowFilter=true", "-c", "uploadpack.allowAnySHA1InWant=true"];
    let mut command =
        program.command(&[&settings[..], &["upload-pack", "--strict", "--stateless-rpc", &timeout], options].concat());
    command.arg(repository);
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command
}

/// References, or in protocol version 2 what the server can do.
pub(super) async fn advertise(host: &Inner, repository: &Path, protocol: Option<&str>) -> Result<Response, Problem> {
    let mut command = upload_pack(&host.git, repository, protocol, host.limits.idle, &["--advertise-refs"]);
    let output = tokio::time::timeout(host.limits.idle, command.output()).await.map_err(|_| Problem::Failed)?;
    let output = output.map_err(Problem::failed("cannot run git upload-pack"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        tracing::error!(repository = %repository.display(), said = said.trim(), "git upload-pack failed");
        return Err(Problem::Failed);
    }
    let mut body = Vec::new();
    if !is_second(protocol) {
        pkt_line::put(&mut body, b"# service=git-upload-pack\n");
        body.extend_from_slice(pkt_line::FLUSH);
    }
    body.extend_from_slice(&output.stdout);
    Ok(answer(Service::UploadPack.advertisement_type(), Body::from(body)))
}

/// Whether version 2 of Git's protocol is spoken.
fn is_second(protocol: Option<&str>) -> bool {
    protocol.is_some_and(|protocol| protocol.split(':').any(|key| key == "version=2"))
}

/// One round of a fetch from a repository that nobody has pushed to yet: it has no references.
pub(super) async fn nothing(
    host: &Inner,
    headers: &HeaderMap,
    protocol: Option<&str>,
    body: Body,
) -> Result<Response, Problem> {
    const COMMAND: &[u8] = b"command=ls-refs";
    let mut input = Input::open(headers, body, MAX_REQUEST_BYTES, host.limits.idle).await?;
    let whole = input.whole(PORTION_BYTES).await?.unwrap_or_default();
    let asks = |body: &[u8]| body.get(4..).is_some_and(|line| line.starts_with(COMMAND));
    if !is_second(protocol) || !asks(&whole) {
        return Err(Problem::Bad("nothing was pushed there yet"));
    }
    Ok(answer(Service::UploadPack.result_type(), Body::from(pkt_line::FLUSH)))
}

/// One round of a fetch. The program ends with the client.
pub(super) async fn serve(
    host: &Inner,
    repository: &Path,
    headers: &HeaderMap,
    protocol: Option<&str>,
    body: Body,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let idle = host.limits.idle;
    let mut input = Input::open(headers, body, MAX_REQUEST_BYTES, idle).await?;
    if is_second(protocol)
        && let Some(answered) = plain::serve(host, repository, &mut input).await?
    {
        return Ok(answer(Service::UploadPack.result_type(), Body::from(answered)));
    }
    let mut command = upload_pack(&host.git, repository, protocol, idle, &[]);
    let running =
        Running::start(command.stdin(Stdio::piped())).map_err(Problem::failed("cannot run git upload-pack"))?;
    let (portions, mut answered) = mpsc::channel(4);
    tokio::spawn(async move {
        converse(running, input, portions, idle).await;
        drop(permit);
    });
    // What was not understood at all is answered as such; later there is nothing to take back.
    let first = match answered.recv().await {
        Some(Ok(first)) => first,
        Some(Err(problem)) => return Err(problem),
        None => Bytes::new(),
    };
    let rest = ReceiverStream::new(answered);
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(answer(Service::UploadPack.result_type(), body))
}

type Portions = mpsc::Sender<Result<Bytes, Problem>>;

/// Passes both directions on at the same time, until one of the sides has ended.
async fn converse(mut running: Running, input: Input, portions: Portions, idle: Duration) {
    let child = running.child();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else { return };
    let fed = async {
        match feed(input, stdin).await {
            Ok(()) => std::future::pending().await,
            Err(problem) => problem,
        }
    };
    let (answered, said) = tokio::select! {
        problem = fed => {
            // Nobody may be there to hear it, or nobody who takes anything.
            let _gone = portions.try_send(Err(problem));
            return running.end().await;
        }
        ended = async { tokio::join!(pass(stdout, &portions, idle), complaint(stderr)) } => ended,
    };
    let Some(answered) = answered else { return running.end().await };
    let status = running.child().wait().await;
    if !status.is_ok_and(|status| status.success()) {
        tracing::debug!(said, "git upload-pack failed");
        if answered == 0 {
            let _gone = portions.send(Err(Problem::Bad("git does not understand it"))).await;
        }
    }
}

async fn feed(mut input: Input, mut stdin: ChildStdin) -> Result<(), Problem> {
    while let Some(chunk) = input.chunk().await? {
        if stdin.write_all(&chunk).await.is_err() {
            // It has heard enough.
            return Ok(());
        }
    }
    Ok(())
}

/// Passes the answer on; its length, or `None` if the client does not take it.
async fn pass(mut stdout: ChildStdout, portions: &Portions, idle: Duration) -> Option<u64> {
    let (mut buffer, mut passed) = (BytesMut::new(), 0);
    loop {
        buffer.reserve(PORTION_BYTES);
        let read = tokio::select! {
            () = portions.closed() => return None,
            read = stdout.read_buf(&mut buffer) => read.ok()?,
        };
        if read == 0 {
            return Some(passed);
        }
        passed += read as u64;
        match tokio::time::timeout(idle, portions.send(Ok(buffer.split().freeze()))).await {
            Ok(Ok(())) => {}
            _ => return None,
        }
    }
}
