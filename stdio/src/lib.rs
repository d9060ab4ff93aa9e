//! Standard output and standard error of programs whose reader may go away, as in `trishanku status | head`.
//!
//! Rust programs ignore SIGPIPE, so a write to a closed pipe fails, and [`std::println!`] panics. Here:
//!
//! - A write to a closed standard output ends the process immediately, without a message and with status [`CLOSED`]: the
//!   reader has seen enough, which is not a failure, even for a shell with `pipefail`.
//! - A message that cannot be written to standard error is dropped, and the program continues.
//!
//! This is for commands. A server that logs to standard output must outlive its reader, so it does not use this.

pub mod text;

use std::fmt::Arguments;
use std::io::{self, StdoutLock, Write};

use anstream::AutoStream;

/// Exit status of a process whose standard output is closed.
pub const CLOSED: i32 = 0;

/// A writer that ends the process when its reader is gone.
#[derive(Debug)]
pub struct Output<W>(W);

/// Returns standard output; styles are removed unless it is a terminal.
pub fn stdout() -> Output<AutoStream<StdoutLock<'static>>> {
    Output(anstream::stdout().lock())
}

/// Returns standard output for bytes, which are printed unchanged.
pub fn plain_stdout() -> Output<StdoutLock<'static>> {
    Output(io::stdout().lock())
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        open(self.0.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        open(self.0.flush())
    }

    fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        open(self.0.write_all(buffer))
    }

    fn write_fmt(&mut self, text: Arguments<'_>) -> io::Result<()> {
        open(self.0.write_fmt(text))
    }
}

/// Returns the result of a write; ends the process if the reader is gone.
fn open<T>(written: io::Result<T>) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(CLOSED),
        written => written,
    }
}

/// Prints a line to standard output; for [`println!`]. Ends the process with status 1 if that fails.
#[doc(hidden)]
pub fn print_line(text: Arguments<'_>) {
    let mut out = stdout();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        print_error(format_args!("error: cannot write to standard output: {error}\n"));
        std::process::exit(1);
    }
}

/// Prints a message to standard error, and ignores failures; for [`eprint!`] and [`eprintln!`].
#[doc(hidden)]
pub fn print_error(text: Arguments<'_>) {
    let _unread = anstream::stderr().lock().write_fmt(text);
}

/// [`std::println!`], which ends the process quietly if standard output is closed.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => { $crate::print_line(::std::format_args!($($text)*)) };
}

/// [`std::eprint!`], which does nothing if standard error is closed.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print_error(::std::format_args!($($text)*)) };
}

/// [`std::eprintln!`], which does nothing if standard error is closed.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print_error(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}
