//! Fetch requests of clients that follow a branch, answered in process: list references, and send what is new since a commit that
//! the client has. Everything else is left to Git.
//!
//! Source: `gitprotocol-v2(5)`.

use std::path::Path;
use std::sync::Arc;

use git2::{Oid, Repository};
use gitcd_repo::pkt_line::{self, Head};
use gitcd_repo::received::Received;
use gitcd_repo::refs::Refs;
use gitcd_repo::transfer;

use super::super::Inner;
use super::super::input::Input;
use super::super::problem::{Problem, blocking};

/// Longer requests are negotiations and left to Git.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Largest pack that is built in memory.
const MAX_PACK_BYTES: usize = 4 << 20;
const MAX_COMMITS: usize = 1000;
/// Payload of a side-band pkt-line: its length and band take five bytes.
const BAND_BYTES: usize = pkt_line::MAX_BYTES - 5;

/// A request that is answered in process.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Lists the references with one of these prefixes.
    References(Vec<String>),
    /// Sends what `wanted` needs beyond the histories of `have`.
    Objects { wanted: Vec<Oid>, have: Vec<Oid> },
}

/// Returns the response; `None`, with the input not consumed, if it is left to Git.
pub(super) async fn serve(host: &Inner, repository: &Path, input: &mut Input) -> Result<Option<Vec<u8>>, Problem> {
    let Some(body) = input.whole(MAX_REQUEST_BYTES).await? else { return Ok(None) };
    let Some(request) = Request::parse(&body) else { return Ok(None) };
    let (recent, repository) = (host.recent.clone(), repository.to_owned());
    let answered = blocking("answer a fetch", move || {
        if let Request::Objects { wanted, have } = &request
            && let Some(pack) = recent.history(&repository).pack(wanted, have, MAX_PACK_BYTES)
        {
            return Some(framed(&pack));
        }
        let opened = Repository::open(&repository).ok()?;
        if hides(&opened) {
            return None;
        }
        match request {
            Request::References(beginnings) => references(&repository, &beginnings),
            Request::Objects { wanted, have } => objects(&opened, &wanted, &have, recent.of(&repository)),
        }
    });
    // After a failure Git handles the request and reports errors better.
    Ok(answered.await.ok().flatten())
}

impl Request {
    fn parse(body: &[u8]) -> Option<Self> {
        let (mut command, mut lines, mut rest) = (Vec::new(), Vec::new(), body);
        let mut is_argument = false;
        loop {
            let (digits, after) = rest.split_first_chunk()?;
            rest = after;
            match pkt_line::head(*digits)? {
                Head::Flush => break,
                Head::Delimiter if !is_argument => is_argument = true,
                Head::Line(length) => {
                    let (line, after) = rest.split_at_checked(length)?;
                    rest = after;
                    let line = str::from_utf8(line.strip_suffix(b"\n").unwrap_or(line)).ok()?;
                    if is_argument { &mut lines } else { &mut command }.push(line);
                }
                Head::Delimiter | Head::End => return None,
            }
        }
        let plain = |line: &&&str| line.starts_with("agent=") || **line == "object-format=sha1";
        let [name] = command.iter().filter(|line| !plain(line)).collect::<Vec<_>>()[..] else { return None };
        match *name {
            "command=ls-refs" => {
                let beginnings = lines.iter().map(|line| Some(line.strip_prefix("ref-prefix ")?.to_owned()));
                let beginnings = beginnings.collect::<Option<Vec<_>>>()?;
                // Only references below `refs/` are listed here, not `HEAD`.
                let is_below = |beginning: &String| beginning.starts_with("refs/");
                (!beginnings.is_empty() && beginnings.iter().all(is_below)).then_some(Self::References(beginnings))
            }
            "command=fetch" => {
                let (mut wanted, mut have, mut is_done, mut is_thin) = (Vec::new(), Vec::new(), false, false);
                for line in lines {
                    match line.split_once(' ') {
                        Some(("want", oid)) => wanted.push(id(oid)?),
                        Some(("have", oid)) => have.push(id(oid)?),
                        None if line == "done" => is_done = true,
                        None if line == "thin-pack" => is_thin = true,
                        None if line == "no-progress" || line == "ofs-delta" => {}
                        _ => return None,
                    }
                }
                (is_done && is_thin && !wanted.is_empty() && !have.is_empty()).then_some(Self::Objects { wanted, have })
            }
            _ => None,
        }
    }
}

fn id(text: &str) -> Option<Oid> {
    (text.len() == 40).then(|| Oid::from_str(text).ok()).flatten()
}

/// Whether the repository's configuration hides references or changes `upload-pack`, which is left to Git.
fn hides(repository: &Repository) -> bool {
    let hides = || {
        let config = repository.config()?;
        let mut entries = config.entries(Some(r"\.hiderefs$|^uploadpack\."))?;
        let is_split = repository.namespace().is_ok_and(|name| name.is_some());
        Ok::<_, git2::Error>(is_split || entries.next().is_some())
    };
    hides().unwrap_or(true)
}

fn references(repository: &Path, beginnings: &[String]) -> Option<Vec<u8>> {
    let all = Refs::open(repository).and_then(|refs| refs.list()).ok()?;
    let mut body = Vec::new();
    for (name, oid) in all {
        if beginnings.iter().any(|beginning| name.starts_with(beginning)) {
            pkt_line::put(&mut body, format!("{oid} {name}\n").as_bytes());
        }
    }
    body.extend_from_slice(pkt_line::FLUSH);
    Some(body)
}

fn objects(repository: &Repository, wanted: &[Oid], have: &[Oid], recent: Vec<Arc<Received>>) -> Option<Vec<u8>> {
    // Left to Git: clients without a commit of this repository, wanted tags, and shallow repositories.
    let is_commit = |oid: &Oid| repository.find_commit(*oid).is_ok();
    if repository.is_shallow() || !have.iter().any(is_commit) || !wanted.iter().all(is_commit) {
        return None;
    }
    let bounds = transfer::Bounds { commits: MAX_COMMITS, bytes: MAX_PACK_BYTES };
    Some(framed(&transfer::thin(repository, wanted, have, recent, bounds).ok()??))
}

/// Frames a pack as the pkt-lines of a response.
fn framed(pack: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(pack.len() + pack.len() / 1000 + 64);
    pkt_line::put(&mut body, b"packfile\n");
    for part in pack.chunks(BAND_BYTES) {
        pkt_line::put(&mut body, &[b"\x01", part].concat());
    }
    body.extend_from_slice(pkt_line::FLUSH);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(command: &[&str], arguments: &[&str]) -> Vec<u8> {
        let mut body = Vec::new();
        command.iter().for_each(|line| pkt_line::put(&mut body, line.as_bytes()));
        body.extend_from_slice(pkt_line::DELIMITER);
        arguments.iter().for_each(|line| pkt_line::put(&mut body, line.as_bytes()));
        body.extend_from_slice(pkt_line::FLUSH);
        body
    }

    #[test]
    fn only_plain_requests_are_understood() {
        let head = ["command=ls-refs\n", "agent=a", "object-format=sha1"];
        let listed = Request::parse(&body(&head, &["ref-prefix refs/heads/\n"]));
        assert_eq!(listed, Some(Request::References(vec!["refs/heads/".into()])));
        assert_eq!(Request::parse(&body(&head, &["peel"])), None);
        for all in [&[][..], &["ref-prefix HEAD"], &["ref-prefix H", "ref-prefix refs/"]] {
            assert_eq!(Request::parse(&body(&head, all)), None, "{all:?} matches HEAD");
        }
        assert_eq!(Request::parse(&body(&["command=ls-refs", "server-option=x"], &[])), None);
        let one = "1".repeat(40);
        let (want, have) = (format!("want {one}\n"), format!("have {one}"));
        let fetch = |arguments: &[&str]| Request::parse(&body(&["command=fetch"], arguments));
        let oids = vec![Oid::from_str(&one).unwrap()];
        let plain = Some(Request::Objects { wanted: oids.clone(), have: oids });
        assert_eq!(fetch(&["thin-pack", "ofs-delta", &want, &have, "done"]), plain);
        for other in ["deepen 1", "filter blob:none", "shallow 1", "want-ref x", "include-tag"] {
            assert_eq!(fetch(&["thin-pack", &want, &have, other, "done"]), None, "{other}");
        }
        assert_eq!(fetch(&["thin-pack", &want, &have]), None, "it is a negotiation");
        assert_eq!(fetch(&["thin-pack", &want, "done"]), None, "it is a clone");
        let whole = body(&["command=fetch"], &["thin-pack", &want, &have, "done"]);
        for end in 0..whole.len() {
            assert_eq!(Request::parse(&whole[..end]), None);
        }
    }
}
