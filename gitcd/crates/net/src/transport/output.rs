//! What a connection has to say, gathered.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use gitcd_core::fence::Pass;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::listener::{Connection, Peer};

/// So much is gathered before it is written in any case.
const GATHERED_BYTES: usize = 64 << 10;
/// What is at least as large is not copied.
const DIRECT_BYTES: usize = 8 << 10;
/// Parts that one system call takes.
const SLICES: usize = 8;
/// What a connection without anything to say keeps of its buffer.
const KEPT_BYTES: usize = 8 << 10;

/// A connection for the HTTP library, which writes after every frame of more than 256 bytes. Here it writes into a buffer, and
/// whoever drives the connection calls [`Gathering::poll_write_out`] when there is nothing left to do: the answers
/// to all requests that came in together leave in one system call.
#[derive(Clone, Debug)]
pub(super) struct Gathering(Arc<Mutex<Output>>);

#[derive(Debug)]
struct Output {
    connection: Connection,
    /// What it needs to be written to, if anything.
    pass: Option<Pass>,
    gathered: Vec<u8>,
    /// How much of it is written already.
    written: usize,
    /// Whether anything was read.
    heard: bool,
    /// Who waits for that.
    waker: Option<Waker>,
}

impl Gathering {
    pub(super) fn new(connection: Connection, pass: Option<Pass>) -> Self {
        let (gathered, written) = (Vec::new(), 0);
        Self(Arc::new(Mutex::new(Output { connection, pass, gathered, written, heard: false, waker: None })))
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> Peer {
        self.0.lock().connection.peer().clone()
    }

    /// Writes what was gathered.
    pub(super) fn poll_write_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_write_out(cx)
    }

    /// Waits until the client has said something.
    pub(super) async fn heard(&self) {
        poll_fn(|cx| {
            let mut output = self.0.lock();
            if output.heard {
                return Poll::Ready(());
            }
            output.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Says that nothing more comes, and reads until the client says so too (RFC 9112, section 9.6).
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
    /// Writes what was gathered and then, at once, `bufs`; returns how much of these.
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

    /// The last moment at which an answer can be held back.
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

impl AsyncRead for Gathering {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        let before = buf.filled().len();
        ready!(Pin::new(&mut output.connection).poll_read(cx, buf))?;
        if !output.heard && buf.filled().len() > before {
            output.heard = true;
            if let Some(waker) = output.waker.take() {
                waker.wake();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Gathering {
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
        // Done by whoever drives the connection.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.0.lock();
        ready!(output.poll_write_out(cx))?;
        Pin::new(&mut output.connection).poll_shutdown(cx)
    }
}
