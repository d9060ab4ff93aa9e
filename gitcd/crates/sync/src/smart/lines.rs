//! The pkt-lines of a response.

use bytes::{Buf as _, Bytes, BytesMut};
use gitcd_repo::pkt_line::{self, Head};

use super::{SILENCE, error};
use crate::status::Condition;
use crate::wire::TransportError;

/// A pkt-line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Flush,
    Delimiter,
    End,
    Data(Bytes),
}

/// A reader of pkt-lines from a response that is still being received.
pub(super) struct Lines {
    response: reqwest::Response,
    buffer: BytesMut,
}

impl Lines {
    pub(super) fn new(response: reqwest::Response) -> Self {
        Self { response, buffer: BytesMut::new() }
    }

    /// Returns the next line; `None` at the end of the response.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, TransportError> {
        if !self.has(4).await? {
            return if self.buffer.is_empty() { Ok(None) } else { Err(strange()) };
        }
        let digits = *self.buffer.first_chunk().ok_or_else(strange)?;
        let head = pkt_line::head(digits).ok_or_else(strange)?;
        self.buffer.advance(4);
        Ok(Some(match head {
            Head::Flush => Line::Flush,
            Head::Delimiter => Line::Delimiter,
            Head::End => Line::End,
            Head::Line(length) => {
                if !self.has(length).await? {
                    return Err(strange());
                }
                Line::Data(self.buffer.split_to(length).freeze())
            }
        }))
    }

    /// Returns the next line of text, without its newline; `None` at the end of the list.
    pub(super) async fn text(&mut self) -> Result<Option<String>, TransportError> {
        match self.next().await? {
            Some(Line::Data(line)) => text(&line).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the next line of a list that must end with a flush; otherwise it was truncated.
    pub(super) async fn listed(&mut self) -> Result<Option<String>, TransportError> {
        match self.next().await? {
            Some(Line::Data(line)) => text(&line).map(Some),
            Some(Line::Flush) => Ok(None),
            _ => Err(strange()),
        }
    }

    async fn has(&mut self, length: usize) -> Result<bool, TransportError> {
        while self.buffer.len() < length {
            match chunk(&mut self.response).await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Returns a line without its newline, or the error that the remote reports in it.
fn text(line: &[u8]) -> Result<String, TransportError> {
    let line = String::from_utf8_lossy(line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    match line.strip_prefix("ERR ") {
        Some(said) => Err(TransportError::of(said)),
        None => Ok(line.to_owned()),
    }
}

/// Returns the next bytes of a response; fails after [`SILENCE`] without any.
pub(super) async fn chunk(response: &mut reqwest::Response) -> Result<Option<Bytes>, TransportError> {
    let silent = |_| TransportError::new(Condition::Unreachable, format!("no data received for {SILENCE:?}"));
    let chunk = tokio::time::timeout(SILENCE, response.chunk()).await.map_err(silent)?;
    chunk.map_err(|failed| error(&failed))
}

fn strange() -> TransportError {
    TransportError::new(Condition::Unreachable, "the response is not in Git's protocol, or was truncated")
}
