//! The clients that put a server under load: the Rust client, which is a part of this program, and the Go client.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::go_client::{GoClient, GoProgram};
use crate::load::Tally;
use crate::process;
use crate::target::Target;
use crate::workload::{Spec, Workload};

/// The language of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    /// etcd's clientv3, as in kube-apiserver.
    Go,
    /// tonic, in this program.
    Rust,
}

impl Language {
    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Go => "Go",
            Self::Rust => "Rust",
        }
    }
}

/// The clients to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientChoice {
    /// Only the Go client
    Go,
    /// Only the Rust client
    Rust,
    /// One after the other
    Both,
}

impl ClientChoice {
    /// The languages, in the order in which they run.
    pub(crate) fn languages(self) -> &'static [Language] {
        match self {
            Self::Go => &[Language::Go],
            Self::Rust => &[Language::Rust],
            Self::Both => &[Language::Go, Language::Rust],
        }
    }

    /// The value of `--client`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Rust => "rust",
            Self::Both => "both",
        }
    }
}

/// How clients are started.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The languages, in the order in which they run.
    pub(crate) languages: &'static [Language],
    /// The Go client, if it is one of them.
    pub(crate) go: Option<GoProgram>,
    /// HTTP/2 connections of the Go client; the Rust client's are in the target.
    pub(crate) connections: usize,
    /// Threads of the Go client.
    pub(crate) threads: usize,
}

impl Clients {
    /// Starts a client for all turns of a workload on one server.
    ///
    /// # Errors
    /// If the Go client cannot be started.
    pub(crate) fn start(&self, language: Language, target: &Target, spec: &Spec) -> Result<Driver> {
        Ok(match language {
            Language::Rust => Driver::Rust,
            Language::Go => {
                let program = self.go.as_ref().context("there is no Go client")?;
                let client = program.start(&target.server.url(), spec, self.connections, self.threads)?;
                Driver::Go(Box::new(client))
            }
        })
    }
}

/// A client of one workload and server.
#[derive(Debug)]
pub(crate) enum Driver {
    /// The Rust client.
    Rust,
    /// The Go client's process.
    Go(Box<GoClient>),
}

impl Driver {
    /// Puts the server under load for about `length`.
    ///
    /// # Errors
    /// If an operation fails.
    pub(crate) async fn slice(&mut self, target: &Target, workload: &dyn Workload, length: Duration) -> Result<Tally> {
        match self {
            Self::Rust => workload.slice(target, length).await,
            Self::Go(client) => client.turn(length, &target.next_new, &target.compactor, &target.client).await,
        }
    }

    /// Processor time of this program and of the client.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let own = process::cpu(std::process::id())?;
        Ok(match self {
            Self::Rust => own,
            Self::Go(client) => own + client.cpu()?,
        })
    }
}
