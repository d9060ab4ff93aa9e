//! Fast path for `Range`: straight from the HTTP request to the HTTP response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use prost::Message;
use tonic::{Code, Status};

use crate::api::Backend;
use crate::api::range::PREFIX_BYTES;
use crate::proto::etcdserverpb::RangeRequest;

const PATH: &str = "/etcdserverpb.KV/Range";

/// A `Range` whose request is being read. Unusual requests are left to the general gRPC server.
pub(super) struct RangeFastPath {
    /// `None` once the request has been read and decoded.
    request: Option<Request<Incoming>>,
    read: Read,
    range: Option<RangeRequest>,
}

/// Outcome of the fast path.
pub(super) enum Progress {
    /// The response and its code.
    Answered(Response<Body>, Code),
    /// The unchanged request, for the general server.
    NotForUs(Request<Body>),
}

impl RangeFastPath {
    /// Whether a request qualifies for the fast path.
    pub(super) fn takes<B>(request: &Request<B>) -> bool {
        let headers = request.headers();
        let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        request.uri().path() == PATH
            && request.method() == Method::POST
            && request.version() == Version::HTTP_2
            && kind.is_some_and(|kind| kind == b"application/grpc" || kind == b"application/grpc+proto")
            && !headers.contains_key("grpc-encoding")
    }

    /// Starts with a request that [`RangeFastPath::takes`].
    pub(super) fn new(request: Request<Incoming>) -> Self {
        Self { request: Some(request), read: Read::default(), range: None }
    }

    /// Returns the headers of a request whose body has not been read yet.
    pub(super) fn waits_for(&self) -> Option<&HeaderMap> {
        self.request.as_ref().map(Request::headers)
    }

    pub(super) fn poll(&mut self, backend: &Backend, limit: usize, cx: &mut Context<'_>) -> Poll<Progress> {
        if let Some(range) = self.range.take() {
            return Poll::Ready(answer(backend, range));
        }
        if let Some(request) = &mut self.request {
            while self.read.len() <= limit + PREFIX_BYTES
                && let Some(frame) = ready!(Pin::new(request.body_mut()).poll_frame(cx))
            {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => self.read.push(data),
                    Ok(Err(_trailers)) => {}
                    // The client cancelled, or its connection failed.
                    Err(_) => return Poll::Ready(refused(&Status::cancelled("context canceled"))),
                }
            }
        }
        let read = std::mem::take(&mut self.read).whole();
        let Some(range) = decode(&read, limit).filter(|range| !backend.may_read_git(range)) else {
            let request = self.request.take().expect("a request is read once");
            return Poll::Ready(Progress::NotForUs(request.map(|_| Body::from(read))));
        };
        self.request = None;
        if range.range_end.is_empty() {
            return Poll::Ready(answer(backend, range));
        }
        // A range may take long, so it yields once to other requests on the connection.
        self.range = Some(range);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The body so far. Most arrive in one piece, which is not copied; otherwise each byte is copied a few times at most.
#[derive(Default)]
struct Read {
    first: Bytes,
    /// The whole body, if it arrived in several pieces.
    joined: Vec<u8>,
}

impl Read {
    fn len(&self) -> usize {
        self.first.len().max(self.joined.len())
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.first);
        }
        self.joined.extend_from_slice(&piece);
    }

    fn whole(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.into() }
    }
}

/// Decodes exactly one message, neither compressed nor too large.
fn decode(read: &Bytes, limit: usize) -> Option<RangeRequest> {
    let prefix = read.get(..PREFIX_BYTES)?;
    let length = (&prefix[1..]).get_u32() as usize;
    if prefix[0] != 0 || length > limit || read.len() != PREFIX_BYTES + length {
        return None;
    }
    RangeRequest::decode(read.slice(PREFIX_BYTES..)).ok()
}

fn answer(backend: &Backend, range: RangeRequest) -> Progress {
    let message = match backend.range_frame(range) {
        Ok(message) => message,
        Err(status) => return refused(&status),
    };
    let mut answer = Response::new(Body::new(Whole { message: Some(message), has_ended: false }));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Progress::Answered(answer, Code::Ok)
}

fn refused(status: &Status) -> Progress {
    Progress::Answered(status.clone().into_http(), status.code())
}

/// One framed message, then OK trailers.
struct Whole {
    message: Option<Bytes>,
    has_ended: bool,
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.has_ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        // Not exact: gRPC has no content length.
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let (mut read, piece) = (Read::default(), Bytes::from(vec![7; 100]));
        read.push(piece.clone());
        read.push(Bytes::new());
        assert_eq!(read.len(), 100);
        let mut read = Read::default();
        read.push(piece.clone());
        assert_eq!(read.whole().as_ptr(), piece.as_ptr());
    }

    /// If each piece copied all earlier ones, that would be 2 TiB.
    #[test]
    fn a_body_in_tiny_pieces_takes_time_in_proportion_to_its_length() {
        let mut read = Read::default();
        for number in 0..2_u32 << 20 {
            read.push(Bytes::copy_from_slice(&[number as u8]));
        }
        assert_eq!(read.len(), 2 << 20);
        let whole = read.whole();
        assert!(whole.iter().enumerate().all(|(number, byte)| *byte == number as u8));
    }
}
