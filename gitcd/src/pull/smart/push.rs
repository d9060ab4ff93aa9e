//! What others get.

use git2::{Odb, Oid, Repository, Sort};

use super::Exchange;
use super::lines::Lines;
use crate::git::pkt_line;
use crate::git::transfer::{Pack, TransferError};
use crate::pull::program::Failed;
use crate::pull::status::Condition;

/// A reference, what it shall be, and what it is expected to be.
pub(in crate::pull) type Update = (String, Oid, Option<Oid>);

impl Exchange<'_> {
    /// Moves references, all or none if the other side can do that, and sends what they need; returns the bytes sent.
    pub(in crate::pull) async fn push(&self, updates: &[Update], pack: Vec<u8>) -> Result<u64, Failed> {
        let mut capabilities = "report-status ofs-delta object-format=sha1".to_owned();
        if self.remote.is_atomic {
            capabilities.push_str(" atomic");
        }
        let mut body = Vec::new();
        let mut options = format!("\0{capabilities} agent=gitcd/{}", env!("CARGO_PKG_VERSION"));
        for (name, new, expected) in updates {
            let old = expected.unwrap_or(Oid::ZERO_SHA1);
            pkt_line::put(&mut body, format!("{old} {new} {name}{}\n", std::mem::take(&mut options)).as_bytes());
        }
        body.extend_from_slice(pkt_line::FLUSH);
        body.extend(pack);
        let sent = body.len() as u64;
        let mut lines = self.call(body).await?;
        report(&mut lines, updates.len()).await?;
        Ok(sent)
    }
}

async fn report(lines: &mut Lines, references: usize) -> Result<(), Failed> {
    let (mut moved, mut refused) = (0, Vec::new());
    while let Some(line) = lines.text().await? {
        if line.starts_with("ok ") {
            moved += 1;
        } else if line.starts_with("ng ") || line.starts_with("unpack ") && line != "unpack ok" {
            refused.push(line);
        }
    }
    if !refused.is_empty() {
        return Err(Failed::of(&refused.join("; ")));
    }
    if moved < references {
        return Err(Failed { condition: Condition::Unreachable, said: "the answer was cut".to_owned() });
    }
    Ok(())
}

/// A thin pack with what `wanted` needs, for a repository that has what is in the history of `there`.
pub(in crate::pull) fn pack(here: &Repository, wanted: &[Oid], there: &[Oid]) -> Result<Vec<u8>, TransferError> {
    let failed = |error: git2::Error| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() };
    let (odb, nothing) = (here.odb().map_err(failed)?, Odb::new().map_err(failed)?);
    let mut walk = here.revwalk().map_err(failed)?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE).map_err(failed)?;
    for oid in wanted {
        walk.push(*oid).map_err(failed)?;
    }
    // What is there and not here says nothing.
    for oid in there.iter().filter(|oid| odb.exists(**oid)) {
        walk.hide(*oid).map_err(failed)?;
    }
    let mut pack = Pack::thin();
    for oid in walk {
        let oid = oid.map_err(failed)?;
        let commit = here.find_commit(oid).map_err(failed)?;
        let before: Vec<Oid> = commit.parents().map(|parent| parent.tree_id()).collect();
        pack.tree(&odb, &nothing, &before, commit.tree_id())?;
        pack.commit(&odb, oid)?;
    }
    Ok(pack.take())
}
