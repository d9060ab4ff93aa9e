//! Request bodies, with limits on size and stalls, decompressed if gzipped.

use std::io::Write as _;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use bytes::{Buf, Bytes, BytesMut};
use flate2::write::GzDecoder;
use futures::StreamExt;
use tokio::sync::Semaphore;

use super::problem::Problem;

/// Compressed bytes that are inflated at a time. They become at most a thousand times as many, of which no more are needed.
const PIECE_BYTES: usize = 256;
/// Allows one inflate step at a time, so that bodies do not occupy all worker threads.
static INFLATING: Semaphore = Semaphore::const_new(1);

/// The body of a request.
pub(super) struct Input {
    stream: BodyDataStream,
    buffer: BytesMut,
    /// Bytes that the client may still send.
    left: u64,
    gunzip: Option<Gunzip>,
    idle: Duration,
}

impl Input {
    /// Starts to read a body of at most `max_bytes`, also after it is decompressed; reads fail once the client sends nothing for
    /// `idle`.
    pub(super) fn open(headers: &HeaderMap, body: Body, max_bytes: u64, idle: Duration) -> Result<Self, Problem> {
        let encoding = headers.get(header::CONTENT_ENCODING).map_or(&b""[..], |value| value.as_bytes());
        let gunzip = match encoding {
            b"" | b"identity" => None,
            b"gzip" | b"x-gzip" => Some(Gunzip::new(max_bytes)),
            _ => return Err(Problem::Type("identity or gzip")),
        };
        Ok(Self { stream: body.into_data_stream(), buffer: BytesMut::new(), left: max_bytes, gunzip, idle })
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

    /// Waits for so many bytes, or the end, and returns what has arrived without consuming it.
    pub(super) async fn peek(&mut self, length: usize) -> Result<&[u8], Problem> {
        while self.buffer.len() < length && self.fill().await? {}
        Ok(&self.buffer)
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

    /// Reads and discards up to `most` bytes as they were sent: clients read the response only after sending the body.
    pub(super) async fn drain(&mut self, mut most: u64) {
        self.gunzip = None;
        while let Ok(Some(chunk)) = self.chunk().await {
            most = most.saturating_sub(chunk.len() as u64);
            if most == 0 {
                break;
            }
        }
    }

    /// Reads more of the body; `false` at its end.
    async fn fill(&mut self) -> Result<bool, Problem> {
        loop {
            if let Some(gunzip) = &mut self.gunzip
                && gunzip.packed.has_remaining()
            {
                // It is never closed.
                let turn = INFLATING.acquire().await;
                let unpacked = gunzip.next()?;
                drop(turn);
                if let Some(unpacked) = unpacked {
                    self.buffer.extend_from_slice(&unpacked);
                    // The caller may ask for all pieces of a body in a row.
                    tokio::task::yield_now().await;
                    return Ok(true);
                }
            }
            match (self.receive().await?, &mut self.gunzip) {
                (Some(chunk), Some(gunzip)) => gunzip.packed = chunk,
                (Some(chunk), None) => {
                    self.buffer.extend_from_slice(&chunk);
                    return Ok(true);
                }
                (None, gunzip) => {
                    let last = gunzip.take().map(Gunzip::finish).transpose()?.unwrap_or_default();
                    self.buffer.extend_from_slice(&last);
                    return Ok(!last.is_empty());
                }
            }
        }
    }

    /// Returns the next bytes that the client sends; `None` at the end.
    async fn receive(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let next = tokio::time::timeout(self.idle, self.stream.next()).await.map_err(|_| Problem::Slow)?;
            let Some(chunk) = next else { return Ok(None) };
            let chunk = chunk.map_err(|_| Problem::Gone)?;
            self.left = self.left.checked_sub(chunk.len() as u64).ok_or(Problem::TooLarge)?;
            if chunk.has_remaining() {
                return Ok(Some(chunk));
            }
        }
    }
}

/// Inflates a body piece by piece: only what is asked for is in memory.
struct Gunzip {
    decoder: GzDecoder<Vec<u8>>,
    /// Received and not inflated yet.
    packed: Bytes,
    /// Bytes that may still come out of it.
    left: u64,
}

impl Gunzip {
    const BAD: Problem = Problem::Bad("the body is not valid gzip");

    fn new(max_bytes: u64) -> Self {
        Self { decoder: GzDecoder::new(Vec::new()), packed: Bytes::new(), left: max_bytes }
    }

    /// Inflates until something comes out; `None` once all that was received is inflated.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        while self.packed.has_remaining() {
            let piece = self.packed.split_to(self.packed.len().min(PIECE_BYTES));
            self.decoder.write_all(&piece).map_err(|_| Self::BAD)?;
            let unpacked = self.unpacked()?;
            if !unpacked.is_empty() {
                return Ok(Some(unpacked));
            }
        }
        Ok(None)
    }

    /// Returns the last bytes. Fails if some are missing, or have another checksum.
    fn finish(mut self) -> Result<Vec<u8>, Problem> {
        self.decoder.try_finish().map_err(|_| Self::BAD)?;
        self.unpacked()
    }

    fn unpacked(&mut self) -> Result<Vec<u8>, Problem> {
        let unpacked = std::mem::take(self.decoder.get_mut());
        self.left = self.left.checked_sub(unpacked.len() as u64).ok_or(Problem::TooLarge)?;
        Ok(unpacked)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const IDLE: Duration = Duration::from_secs(5);

    fn pack(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn open(bytes: Vec<u8>, most: u64, encoding: &'static str) -> Input {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, header::HeaderValue::from_static(encoding))]);
        Input::open(&headers, Body::from(bytes), most, IDLE).unwrap()
    }

    async fn whole(packed: Vec<u8>, most: u64) -> Result<Vec<u8>, Problem> {
        let (mut input, mut all) = (open(packed, most, "gzip"), Vec::new());
        while let Some(chunk) = input.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn what_is_packed_is_unpacked_within_bounds() {
        let content = b"0032want 1234".repeat(1000);
        let most = content.len() as u64;
        assert_eq!(whole(pack(&content), most).await.unwrap(), content);
        assert_eq!(whole(pack(b""), 100).await.unwrap(), b"");
        assert!(matches!(whole(pack(&content), most - 1).await, Err(Problem::TooLarge)));
        let mut lying = pack(&content);
        let end = lying.len() - 4;
        lying[end..].copy_from_slice(&10u32.to_le_bytes());
        assert!(matches!(whole(lying.clone(), most).await, Err(Problem::Bad(_))), "the length is another one");
        let cut = pack(&content)[..end].to_vec();
        let long = [pack(&content), b"rest".to_vec()].concat();
        for wrong in [cut, long, Vec::new(), b"abc".to_vec(), b"not gzip at all\0\0\0\0".to_vec()] {
            assert!(matches!(whole(wrong, most).await, Err(Problem::Bad(_))));
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bodies_that_inflate_leave_time_to_others() {
        let packed = pack(&vec![0; 64 << 20]);
        let all: Vec<_> = (0..8).map(|_| tokio::spawn(whole(packed.clone(), 100 << 20))).collect();
        let mut turns = 0;
        while !all.iter().all(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
            turns += 1;
        }
        // There are more than 250 pieces in each of them.
        assert!(turns > 200, "{turns} turns");
        for one in all {
            assert_eq!(one.await.unwrap().unwrap().len(), 64 << 20);
        }
    }

    #[tokio::test]
    async fn what_is_discarded_is_not_inflated() {
        let pieces = [pack(&b"0".repeat(1 << 20)), b"not gzip".to_vec(), b"nor this".to_vec()];
        let sent: usize = pieces.iter().map(Vec::len).sum();
        let body =
            Body::from_stream(futures::stream::iter(pieces.map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)))));
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"))]);
        let mut input = Input::open(&headers, body, 2 << 20, IDLE).unwrap();
        assert_eq!(input.exact(4).await.unwrap().unwrap(), b"0000"[..]);
        input.drain(u64::MAX).await;
        // To inflate the second piece would have ended in an error.
        assert_eq!(input.left, (2 << 20) - sent as u64);
    }

    #[tokio::test]
    async fn only_what_is_asked_for_is_inflated() {
        let packed = pack(&vec![0; 64 << 20]);
        assert!(packed.len() < 100_000);
        let mut input = open(packed.clone(), 100 << 20, "gzip");
        assert_eq!(input.exact(4).await.unwrap().unwrap(), [0; 4][..]);
        assert!(input.whole(16 << 10).await.unwrap().is_none());
        let buffered = input.peek(0).await.unwrap().len();
        assert!(buffered < 1 << 20, "{buffered}");
        let mut bytes = 4;
        while let Some(chunk) = input.chunk().await.unwrap() {
            assert!(chunk.len() < 1 << 20);
            bytes += chunk.len();
        }
        assert_eq!(bytes, 64 << 20);
        assert!(matches!(whole(packed, 16 << 20).await, Err(Problem::TooLarge)));
    }

    #[tokio::test]
    async fn a_body_is_taken_apart_and_bounded() {
        let open = |bytes: &[u8], most| open(bytes.to_vec(), most, "identity");
        let mut input = open(b"abcdef", 6);
        assert_eq!(input.whole(5).await.unwrap(), None);
        assert_eq!(input.whole(6).await.unwrap().unwrap(), "abcdef");
        assert_eq!(input.exact(4).await.unwrap().unwrap(), "abcd");
        assert_eq!(input.chunk().await.unwrap().unwrap(), "ef");
        assert_eq!(input.chunk().await.unwrap(), None);
        assert_eq!(input.exact(1).await.unwrap(), None);
        assert!(matches!(open(b"abcdef", 5).chunk().await, Err(Problem::TooLarge)));
        assert!(matches!(open(b"abc", 5).exact(4).await, Err(Problem::Bad(_))));
    }
}
