//! Splits a body into JSON objects.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use tonic::Status;

/// The JSON objects of a body. Every byte is scanned once, whatever the chunks of the body.
#[derive(Debug)]
pub(super) struct Values {
    body: Body,
    limit: usize,
    read: BytesMut,
    /// How many bytes of `read` have been scanned.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Values {
    /// Splits `body`, in which no object may have more than `limit` bytes.
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self { body, limit, read: BytesMut::new(), seen: 0, depth: 0, in_string: false, escaped: false }
    }

    /// Returns the next object; `None` at the end of the body.
    ///
    /// # Errors
    /// `InvalidArgument` for anything but a complete object; `ResourceExhausted` for one that is too large; `Cancelled` if the
    /// client disconnects.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(end) = self.end()? {
                self.seen = 0;
                return Ok(Some(self.read.split_to(end).freeze()));
            }
            if self.read.len() > self.limit {
                return Err(Status::resource_exhausted(format!("a JSON object of more than {} bytes", self.limit)));
            }
            match super::next_chunk(&mut self.body).await {
                Some(chunk) => self.read.extend_from_slice(&chunk?),
                None if self.read.is_empty() => return Ok(None),
                None => return Err(Status::invalid_argument("unexpected EOF")),
            }
        }
    }

    /// Returns the end of the current object, if it has been read.
    fn end(&mut self) -> Result<Option<usize>, Status> {
        if self.depth == 0 {
            let spaces = self.read.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let _ = self.read.split_to(spaces);
            if let Some(first) = self.read.first().filter(|first| **first != b'{') {
                let first = char::from(*first);
                return Err(Status::invalid_argument(format!(
                    "syntax error: unexpected {first:?} where an object begins"
                )));
            }
        }
        for (at, byte) in self.read.iter().enumerate().skip(self.seen) {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(at + 1));
                    }
                }
                _ => {}
            }
        }
        self.seen = self.read.len();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use tonic::Code;

    /// Splits a body that arrives in chunks of `size` bytes.
    async fn values(text: &str, size: usize) -> (Vec<String>, Option<Code>) {
        let chunks: Vec<_> =
            text.as_bytes().chunks(size).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk))).collect();
        let mut values = Values::new(Body::from_stream(stream::iter(chunks)), 64);
        let mut found = Vec::new();
        loop {
            match values.next().await {
                Ok(Some(value)) => found.push(String::from_utf8(value.to_vec()).unwrap()),
                Ok(None) => return (found, None),
                Err(status) => return (found, Some(status.code())),
            }
        }
    }

    #[tokio::test]
    async fn objects_are_found_however_the_body_comes() {
        let text = " {\"a\":\"}\\\"{\",\"b\":[{}]}\n{}\t{\"c\\\\\":{\"d\":[]}} ";
        for size in 1..text.len() {
            let expected =
                ["{\"a\":\"}\\\"{\",\"b\":[{}]}", "{}", "{\"c\\\\\":{\"d\":[]}}"].map(ToOwned::to_owned).to_vec();
            assert_eq!(values(text, size).await, (expected, None), "{size}");
        }
    }

    #[tokio::test]
    async fn what_is_no_object_is_refused() {
        for text in ["x", "[]", "null", "}", "{\"a\":", "{\"a\":\"}", "{\"", "[{}]", "\u{fffd}"] {
            assert_eq!(values(text, 2).await, (vec![], Some(Code::InvalidArgument)), "{text}");
        }
        assert_eq!(values("{} }", 1).await, (vec!["{}".to_owned()], Some(Code::InvalidArgument)));
        assert_eq!(values("", 1).await, (vec![], None));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100));
        assert_eq!(values(&long, 3).await, (vec![], Some(Code::ResourceExhausted)));
    }
}
