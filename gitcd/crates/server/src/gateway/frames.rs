//! gRPC's framing of messages in bodies: a flag byte, the length in four bytes, the message.

use axum::body::Body;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use tonic::{Code, Status};

const PREFIX_BYTES: usize = 5;

pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// The messages of a response.
#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    read: BytesMut,
}

impl Messages {
    /// # Errors
    /// The status of the response, if it is an error.
    pub(super) fn of(response: Response<Body>) -> Result<Self, Status> {
        match Status::from_header_map(response.headers()) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ => Ok(Self { body: response.into_body(), read: BytesMut::new() }),
        }
    }

    /// Returns the next message; `None` after the last one if the status is OK.
    ///
    /// # Errors
    /// The status of the response, if it is not OK.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.whole() {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Status::unavailable("the response ended without a status"));
            };
            let frame = frame.map_err(|error| Status::unavailable(format!("the response failed: {error}")))?;
            match frame.into_data() {
                Ok(data) => self.read.extend_from_slice(&data),
                Err(frame) => return ended(&frame.into_trailers().unwrap_or_default()),
            }
        }
    }

    fn whole(&mut self) -> Option<Bytes> {
        let length = (self.read.get(1..PREFIX_BYTES)?).get_u32() as usize;
        if self.read.len() < PREFIX_BYTES + length {
            return None;
        }
        self.read.advance(PREFIX_BYTES);
        Some(self.read.split_to(length).freeze())
    }
}

fn ended(trailers: &HeaderMap) -> Result<Option<Bytes>, Status> {
    match Status::from_header_map(trailers) {
        Some(status) if status.code() == Code::Ok => Ok(None),
        Some(status) => Err(status),
        None => Err(Status::unknown("the response ended without a status")),
    }
}
