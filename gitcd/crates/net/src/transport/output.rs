//! Write coalescing: responses of a connection are buffered and written together.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use gitcd_core::fence::FenceToken;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::listener::{Connection, Peer};

/// Buffered bytes at which the buffer is written before more is added.
const GATHERED_BYTES: usize = 64 << 10;
/// Writes of at least this size bypass the buffer.
const DIRECT_BYTES: usize = 8 << 10;
/// Slices in one vectored write.
const SLICES: usize = 8;
/// Buffer capacity that an idle connection keeps.
const KEPT_BYTES: usize = 8 << 10;

/// A buffered connection for hyper, which writes after every frame of more than 256 bytes. It writes into a buffer, and the
/// connection's task calls [`WriteCoalescer::poll_write_out`] when nothing else is ready: responses to requests that arrived
/// together are sent in one system call.
#[derive(Clone, Debug)]
pub(super) struct WriteCoalescer(Arc<Mutex<Output>>);

#[derive(Debug)]
struct Output {
    connection: Connection,
    /// Required for each write, if the server has a fence.
    pass: Option<FenceToken>,
    gathered: Vec<u8>,
    /// Number of buffered bytes that are already written.
    written: usize,
    /// Bytes that the client has sent.
    received: usize,
    /// Waker of the task that waits for that.
    waker: Option<Waker>,
}

impl WriteCoalescer {
    pub(super) fn new(connection: Connection, pass: Option<FenceToken>) -> Self {
        let (gathered, written) = (Vec::new(), 0);
        Self(Arc::new(Mutex::new(Output { connection, pass, gathered, written, received: 0, waker: None })))
    }

    /// Returns the client.
    pub(super) fn peer(&self) -> Peer {
        self.0.lock().connection.peer().clone()
    }

    /// Returns how many bytes the client has sent.
    pub(super) fn received(&self) -> usize {
        self.0.lock().received
    }

    /// Counts that the connection is closed because the client is silent.
    pub(super) fn timed_out(&self) {
        self.0.lock().connection.timed_out();
    }

    /// Writes the buffer, and flushes the connection.
    pub(super) fn poll_write_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_write_out(cx)
    }

    /// Waits until the client has sent something.
    pub(super) async fn wait_for_input(&self) {
        poll_fn(|cx| {
            let mut output = self.0.lock();
            if output.received > 0 {
                return Poll::Ready(());
            }
            output.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Shuts down the write side, and reads until the client closes its side (RFC 9112, section 9.6).
    pub(super) async fn linger(mut self) {
        let mut unread = [0; 4 << 10];
        if self.shutdown().await.is_ok() {
            while self.read(&mut unread).await.is_ok_and(|bytes| bytes > 0) {}
        }
    }
}

impl Output {
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            self.check()?;
            let rest = &self.gathered[self.written..];
            match ready!(Pin::new(&mut self.connection).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.written += bytes,
            }
        }
        if self.written == 0 {
            return Poll::Ready(Ok(()));
        }
        self.forget();
        Pin::new(&mut self.connection).poll_flush(cx)
    }
}

impl Output {
    /// Writes the buffer and then `bufs` without copying them; returns how many bytes of `bufs` were written.
    fn poll_write_through(&mut self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            self.check()?;
            let rest = &self.gathered[self.written..];
            let mut all = [io::IoSlice::new(&[]); SLICES];
            all[0] = io::IoSlice::new(rest);
            let number = bufs.len().min(SLICES - 1);
            all[1..=number].copy_from_slice(&bufs[..number]);
            let written = ready!(Pin::new(&mut self.connection).poll_write_vectored(cx, &all[..=number]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let Some(through) = written.checked_sub(rest.len()) else {
                self.written += written;
                continue;
            };
            self.forget();
            if through > 0 {
                return Poll::Ready(Ok(through));
            }
        }
    }

    /// Checks the fence immediately before a system call, the last moment at which a response can be held back.
    fn check(&self) -> io::Result<()> {
        match &self.pass {
            Some(pass) if !pass.is_good() => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the writer lease has ended"))
            }
            _ => Ok(()),
        }
    }

    fn forget(&mut self) {
        self.gathered.clear();
        self.gathered.shrink_to(KEPT_BYTES);
        self.written = 0;
    }
}

impl AsyncRead for WriteCoalescer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        let before = buf.filled().len();
        ready!(Pin::new(&mut output.connection).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        output.received = output.received.saturating_add(bytes);
        if bytes > 0
            && let Some(waker) = output.waker.take()
        {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WriteCoalescer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut output = self.0.lock();
        if length >= DIRECT_BYTES {
            return output.poll_write_through(cx, bufs);
        }
        if output.gathered.len() >= GATHERED_BYTES {
            ready!(output.poll_write_out(cx))?;
        }
        bufs.iter().for_each(|buf| output.gathered.extend_from_slice(buf));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `drive` writes the buffer when nothing else is ready.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        ready!(output.poll_write_out(cx))?;
        Pin::new(&mut output.connection).poll_shutdown(cx)
    }
}
