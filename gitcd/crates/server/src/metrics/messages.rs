//! Counts the messages in bodies of streams, as they pass.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;

const PREFIX_BYTES: usize = 5;

/// Position in a gRPC body, which repeats: a flag byte, a length in four bytes, the message.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// The bytes of the prefix so far.
    prefix: [u8; PREFIX_BYTES],
    read: usize,
    /// How many bytes of the message are still to come.
    rest: usize,
}

impl Position {
    /// Advances over `data`; returns how many messages end in it.
    pub(super) fn pass(&mut self, mut data: &[u8]) -> u64 {
        let mut ended = 0;
        while !data.is_empty() {
            if self.read < PREFIX_BYTES {
                let bytes = data.len().min(PREFIX_BYTES - self.read);
                self.prefix[self.read..self.read + bytes].copy_from_slice(&data[..bytes]);
                self.read += bytes;
                data = &data[bytes..];
                let [_, length @ ..] = self.prefix;
                self.rest = u32::from_be_bytes(length) as usize;
            } else {
                let bytes = data.len().min(self.rest);
                self.rest -= bytes;
                data = &data[bytes..];
            }
            if self.read == PREFIX_BYTES && self.rest == 0 {
                self.read = 0;
                ended += 1;
            }
        }
        ended
    }
}

/// A body whose messages are counted.
pub(super) struct Counted {
    pub(super) inner: Body,
    pub(super) position: Position,
    pub(super) messages: Counter,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.messages.inc_by(this.position.pass(data));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let body =
            [0, 0, 0, 0, 3, 9, 9, 9, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0].into_iter().chain([7; 256]).collect::<Vec<u8>>();
        for size in 1..body.len() {
            let mut position = Position::default();
            let ended: u64 = body.chunks(size).map(|part| position.pass(part)).sum();
            assert_eq!(ended, 3, "{size}");
        }
    }
}
