//! The program as it is deployed: its definitions, its rights, its flags.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod deploy;
mod process;
mod runs;
