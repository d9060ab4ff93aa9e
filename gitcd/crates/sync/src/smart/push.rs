//! Pushes: sending packs.

use git2::Oid;
use gitcd_repo::pkt_line;

use super::Exchange;
use super::lines::Lines;
use crate::status::Condition;
use crate::wire::{TransportError, Update};

impl Exchange<'_> {
    /// Moves references, atomically if the remote supports it, and sends the pack with their objects; returns the bytes sent.
    pub(crate) async fn push(&self, updates: &[Update], pack: Vec<u8>) -> Result<u64, TransportError> {
        let mut capabilities = "report-status ofs-delta".to_owned();
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

async fn report(lines: &mut Lines, references: usize) -> Result<(), TransportError> {
    let (mut moved, mut refused) = (0, Vec::new());
    while let Some(line) = lines.text().await? {
        if line.starts_with("ok ") {
            moved += 1;
        } else if line.starts_with("ng ") || line.starts_with("unpack ") && line != "unpack ok" {
            refused.push(line);
        }
    }
    if !refused.is_empty() {
        return Err(TransportError::of(&refused.join("; ")));
    }
    if moved < references {
        return Err(TransportError::new(Condition::Unreachable, "the response was truncated"));
    }
    Ok(())
}
