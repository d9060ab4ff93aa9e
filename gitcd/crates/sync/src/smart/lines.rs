//! The lines of an answer.

use bytes::{Buf as _, Bytes, BytesMut};
use gitcd_repo::pkt_line::{self, Head};

use super::{SILENCE, error};
use crate::program::Failed;
use crate::status::Condition;

/// A line, or what is between lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Flush,
    Delimiter,
    End,
    Data(Bytes),
}

/// Reads lines as they come.
pub(super) struct Lines {
    response: reqwest::Response,
    buffer: BytesMut,
}

impl Lines {
    pub(super) fn new(response: reqwest::Response) -> Self {
        Self { response, buffer: BytesMut::new() }
    }

    /// The next line; `None` at the end of the answer.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Failed> {
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

    /// The next line of text, without its end; `None` at the end of the list.
    pub(super) async fn text(&mut self) -> Result<Option<String>, Failed> {
        match self.next().await? {
            Some(Line::Data(line)) => text(&line).map(Some),
            _ => Ok(None),
        }
    }

    /// The same for a list that ends with a flush: anything else means that it was cut.
    pub(super) async fn listed(&mut self) -> Result<Option<String>, Failed> {
        match self.next().await? {
            Some(Line::Data(line)) => text(&line).map(Some),
            Some(Line::Flush) => Ok(None),
            _ => Err(strange()),
        }
    }

    async fn has(&mut self, length: usize) -> Result<bool, Failed> {
        while self.buffer.len() < length {
            match chunk(&mut self.response).await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A line without its end, or what the other side says went wrong.
fn text(line: &[u8]) -> Result<String, Failed> {
    let line = String::from_utf8_lossy(line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    match line.strip_prefix("ERR ") {
        Some(said) => Err(Failed::of(said)),
        None => Ok(line.to_owned()),
    }
}

/// The next bytes of an answer, which must not be silent for long.
pub(super) async fn chunk(response: &mut reqwest::Response) -> Result<Option<Bytes>, Failed> {
    let silent = |_| Failed { condition: Condition::Unreachable, said: format!("it said nothing for {SILENCE:?}") };
    let chunk = tokio::time::timeout(SILENCE, response.chunk()).await.map_err(silent)?;
    chunk.map_err(|failed| error(&failed))
}

fn strange() -> Failed {
    Failed { condition: Condition::Unreachable, said: "the answer is not Git's, or was cut".into() }
}
