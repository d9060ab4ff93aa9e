//! Request bodies, with limits on size and stalls, decompressed if gzipped.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;

use super::problem::Problem;

/// Git gzips only what it buffers in memory: negotiations of at most `http.postBuffer` (1 MiB by default).
const MAX_PACKED_BYTES: usize = 16 << 20;
const MAX_UNPACKED_BYTES: usize = 64 << 20;

/// The body of a request.
pub(super) struct Input {
    stream: Option<BodyDataStream>,
    buffer: BytesMut,
    /// Bytes that the client may still send.
    left: u64,
    idle: Duration,
}

impl Input {
    /// Starts to read a body of at most `max_bytes`; reads fail once the client sends nothing for `idle`.
    pub(super) async fn open(headers: &HeaderMap, body: Body, max_bytes: u64, idle: Duration) -> Result<Self, Problem> {
        let mut input = Self { stream: Some(body.into_data_stream()), buffer: BytesMut::new(), left: max_bytes, idle };
        let encoding = headers.get(header::CONTENT_ENCODING).map_or(&b""[..], |value| value.as_bytes());
        match encoding {
            b"" | b"identity" => {}
            b"gzip" | b"x-gzip" => {
                let packed = input.all(MAX_PACKED_BYTES).await?;
                input.buffer = unpack(&packed)?;
                input.stream = None;
            }
            _ => return Err(Problem::Type("identity or gzip")),
        }
        Ok(input)
    }

    /// Returns the next bytes, as many as have arrived; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.buffer.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// Returns exactly `length` bytes; `None` at the end.
    pub(super) async fn exact(&mut self, length: usize) -> Result<Option<Bytes>, Problem> {
        while self.buffer.len() < length {
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(Problem::Bad("the body ends early")) };
            }
        }
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Returns the rest without consuming it; `None` if it is longer than `most`.
    pub(super) async fn whole(&mut self, most: usize) -> Result<Option<Bytes>, Problem> {
        while self.buffer.len() <= most {
            if !self.fill().await? {
                return Ok(Some(Bytes::copy_from_slice(&self.buffer)));
            }
        }
        Ok(None)
    }

    /// Reads and discards up to `most` bytes: a client that is still sending does not read the response.
    pub(super) async fn drain(&mut self, mut most: u64) {
        while let Ok(Some(chunk)) = self.chunk().await {
            most = most.saturating_sub(chunk.len() as u64);
            if most == 0 {
                break;
            }
        }
    }

    async fn all(&mut self, most: usize) -> Result<Bytes, Problem> {
        while self.fill().await? {
            if self.buffer.len() > most {
                return Err(Problem::TooLarge);
            }
        }
        Ok(self.buffer.split().freeze())
    }

    /// Reads more of the body; `false` at its end.
    async fn fill(&mut self) -> Result<bool, Problem> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        loop {
            let next = tokio::time::timeout(self.idle, stream.next()).await.map_err(|_| Problem::Slow)?;
            let Some(chunk) = next else { return Ok(false) };
            let chunk = chunk.map_err(|_| Problem::Gone)?;
            self.left = self.left.checked_sub(chunk.len() as u64).ok_or(Problem::TooLarge)?;
            if chunk.has_remaining() {
                self.buffer.extend_from_slice(&chunk);
                return Ok(true);
            }
        }
    }
}

fn unpack(packed: &[u8]) -> Result<BytesMut, Problem> {
    const BAD: Problem = Problem::Bad("the body is not valid gzip");
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Err(BAD);
    }
    // The last four bytes are the uncompressed length. They may lie: no more than that is written.
    let length = packed.last_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize).ok_or(BAD)?;
    if length > MAX_UNPACKED_BYTES {
        return Err(Problem::TooLarge);
    }
    let mut unpacked = BytesMut::zeroed(length);
    let written = libdeflater::Decompressor::new().gzip_decompress(packed, &mut unpacked).map_err(|_| BAD)?;
    unpacked.truncate(written);
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(content: &[u8]) -> Vec<u8> {
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut packed = vec![0; compressor.gzip_compress_bound(content.len())];
        let length = compressor.gzip_compress(content, &mut packed).unwrap();
        packed.truncate(length);
        packed
    }

    #[test]
    fn what_is_packed_is_unpacked_within_bounds() {
        let content = b"0032want 1234".repeat(1000);
        assert_eq!(unpack(&pack(&content)).unwrap(), content);
        assert_eq!(unpack(&pack(b"")).unwrap(), b""[..]);
        let mut lying = pack(&content);
        let end = lying.len() - 4;
        lying[end..].copy_from_slice(&10u32.to_le_bytes());
        assert!(matches!(unpack(&lying), Err(Problem::Bad(_))));
        lying[end..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(unpack(&lying), Err(Problem::TooLarge)));
        for wrong in [&b""[..], b"abc", b"not gzip at all\0\0\0\0"] {
            assert!(matches!(unpack(wrong), Err(Problem::Bad(_))));
        }
    }

    #[tokio::test]
    async fn a_body_is_taken_apart_and_bounded() {
        let idle = Duration::from_secs(5);
        let open = async |bytes: &'static [u8], most| {
            Input::open(&HeaderMap::new(), Body::from(bytes), most, idle).await.unwrap()
        };
        let mut input = open(b"abcdef", 6).await;
        assert_eq!(input.whole(5).await.unwrap(), None);
        assert_eq!(input.whole(6).await.unwrap().unwrap(), "abcdef");
        assert_eq!(input.exact(4).await.unwrap().unwrap(), "abcd");
        assert_eq!(input.chunk().await.unwrap().unwrap(), "ef");
        assert_eq!(input.chunk().await.unwrap(), None);
        assert_eq!(input.exact(1).await.unwrap(), None);
        assert!(matches!(open(b"abcdef", 5).await.chunk().await, Err(Problem::TooLarge)));
        assert!(matches!(open(b"abc", 5).await.exact(4).await, Err(Problem::Bad(_))));
    }
}
