//! Sidecars in other people's pods.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod wrong_pods;
