//! Fetches, answered by `git upload-pack`, or in process if they are small.

mod plain;

use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use gitcd_core::program::{Program, Running, stderr_excerpt};
use gitcd_repo::pkt_line;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::Inner;
use super::input::Input;
use super::problem::Problem;
use super::quota::{self, Quota};
use super::service::{Service, answer};

/// Enough for negotiations, which list references and common commits: for 300,000 of them.
const MAX_REQUEST_BYTES: u64 = 16 << 20;
/// A larger negotiation has more than 5,000 objects. Git processes it at the priority of pushes.
const LARGE_BYTES: usize = 256 << 10;
/// Maximum start phase of a program; its first output ends it.
const STARTING: Duration = Duration::from_millis(100);
/// Size of a read, and of a chunk of the response.
const PORTION_BYTES: usize = 64 << 10;

/// Returns the `git upload-pack` command. Read access covers every object of a repository: protocol version 2 cannot restrict it,
/// and partial clones ask for single objects.
fn upload_pack(
    program: &Program,
    repository: &Path,
    protocol: Option<&str>,
    idle: Duration,
    options: &[&str],
) -> Command {
    let timeout = format!("--timeout={}", idle.as_secs().max(1));
    let settings = ["-c", "uploadpack.allowFilter=true", "-c", "uploadpack.allowAnySHA1InWant=true"];
    let mut command = program.reading(
        &[&settings[..], &quota::FETCH_SETTINGS, &["upload-pack", "--strict", "--stateless-rpc", &timeout], options]
            .concat(),
    );
    command.arg(repository);
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command
}

/// Advertises the references, or in protocol version 2 the capabilities.
pub(super) async fn advertise(host: &Inner, repository: &Path, protocol: Option<&str>) -> Result<Response, Problem> {
    let starting = turn(&host.starting, host.limits.idle).await?;
    let mut command = upload_pack(&host.git, repository, protocol, host.limits.idle, &["--advertise-refs"]);
    let mut output = pin!(tokio::time::timeout(host.limits.idle, command.output()));
    let early = tokio::time::timeout(STARTING, output.as_mut()).await;
    drop(starting);
    let output = match early {
        Ok(output) => output,
        Err(_) => output.await,
    };
    let output = output.map_err(|_| Problem::Failed)?;
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

/// Waits for one of the programs that may run at a time.
async fn turn(programs: &Semaphore, patience: Duration) -> Result<SemaphorePermit<'_>, Problem> {
    let turn = tokio::time::timeout(patience, programs.acquire()).await;
    turn.ok().and_then(Result::ok).ok_or(Problem::Busy)
}

/// Whether the client speaks version 2 of Git's protocol.
fn is_second(protocol: Option<&str>) -> bool {
    protocol.is_some_and(|protocol| protocol.split(':').any(|key| key == "version=2"))
}

/// Answers one round of a fetch from a repository that the first push will create: it has no references.
pub(super) async fn nothing(
    host: &Inner,
    headers: &HeaderMap,
    protocol: Option<&str>,
    body: Body,
) -> Result<Response, Problem> {
    const COMMAND: &[u8] = b"command=ls-refs";
    let mut input = Input::open(headers, body, MAX_REQUEST_BYTES, host.limits.idle)?;
    let whole = input.whole(PORTION_BYTES).await?.unwrap_or_default();
    let asks = |body: &[u8]| body.get(4..).is_some_and(|line| line.starts_with(COMMAND));
    if !is_second(protocol) || !asks(&whole) {
        return Err(Problem::Bad("nothing was pushed there yet"));
    }
    Ok(answer(Service::UploadPack.result_type(), Body::from(pkt_line::FLUSH)))
}

/// Answers one round of a fetch. The Git process is killed when the client disconnects.
pub(super) async fn serve(
    host: &Inner,
    repository: &Path,
    headers: &HeaderMap,
    protocol: Option<&str>,
    body: Body,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let idle = host.limits.idle;
    let mut input = Input::open(headers, body, MAX_REQUEST_BYTES, idle)?;
    if is_second(protocol)
        && let Some(answered) = plain::serve(host, repository, &mut input).await?
    {
        return Ok(answer(Service::UploadPack.result_type(), Body::from(answered)));
    }
    let beginning = input.peek(LARGE_BYTES + 1).await?;
    let is_large = beginning.len() > LARGE_BYTES;
    if beginning.first_chunk().is_some_and(|digits| pkt_line::head(*digits).is_none()) {
        return Err(Problem::Bad("the body is not in Git's pkt-line format"));
    }
    let negotiating = if is_large { Some(turn(&host.negotiating, idle).await?) } else { None };
    let starting = turn(&host.starting, idle).await?;
    let mut command = upload_pack(&host.git, repository, protocol, idle, &[]);
    let mut running =
        Running::start(command.stdin(Stdio::piped())).map_err(Problem::failed("cannot run git upload-pack"))?;
    Quota::of_fetch(&mut running, host.limits.fetch_memory_bytes, is_large)
        .map_err(Problem::failed("cannot limit git upload-pack"))?;
    let (portions, mut answered) = mpsc::channel(4);
    tokio::spawn(async move {
        converse(running, input, portions, idle).await;
        drop(permit);
    });
    // An error before the first byte gets an error status; later the status has already been sent.
    let first = tokio::time::timeout(STARTING, answered.recv()).await;
    drop(starting);
    let first = match first {
        Ok(first) => first,
        Err(_) => answered.recv().await,
    };
    drop(negotiating);
    let first = match first {
        Some(Ok(first)) => first,
        Some(Err(problem)) => return Err(problem),
        None => Bytes::new(),
    };
    let rest = ReceiverStream::new(answered);
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(answer(Service::UploadPack.result_type(), body))
}

type Portions = mpsc::Sender<Result<Bytes, Problem>>;

/// Copies both directions concurrently until one side ends.
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
            // The client may be gone, or not reading.
            let _gone = portions.try_send(Err(problem));
            return running.end().await;
        }
        ended = async { tokio::join!(pass(stdout, &portions, idle), stderr_excerpt(stderr)) } => ended,
    };
    let Some(answered) = answered else { return running.end().await };
    let status = running.child().wait().await;
    if !status.is_ok_and(|status| status.success()) {
        tracing::debug!(said, "git upload-pack failed");
        if answered == 0 {
            let _gone = portions.send(Err(Problem::Bad("git rejects the request"))).await;
        }
    }
}

async fn feed(mut input: Input, mut stdin: ChildStdin) -> Result<(), Problem> {
    while let Some(chunk) = input.chunk().await? {
        if stdin.write_all(&chunk).await.is_err() {
            // The process has closed its input.
            return Ok(());
        }
    }
    Ok(())
}

/// Copies the output to the client; returns its length, or `None` if the client stops reading.
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
