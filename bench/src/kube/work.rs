//! The kinds of work, and one turn of each: a number of operations with a given concurrency.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::http::Http;
use super::objects;
use crate::load::Tally;

/// A kind of work on the objects, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Create,
    Patch,
    ListPages,
    ListAll,
    Delete,
}

/// Objects per page.
const PAGE: u64 = 500;
/// Clients that list: fewer than writers, as responses are much larger.
const PAGE_CLIENTS: usize = 8;
const LIST_CLIENTS: usize = 4;
/// Lists per turn, and how often all pages are fetched.
const LISTS: u64 = 16;

impl Work {
    /// All kinds, in the order in which they run.
    pub(crate) const ALL: [Self; 5] = [Self::Create, Self::Patch, Self::ListPages, Self::ListAll, Self::Delete];

    /// Short name, for the tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "patch",
            Self::ListPages => "list-500",
            Self::ListAll => "list",
            Self::Delete => "delete",
        }
    }

    /// The description for the report.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Create => "`POST` of a new ConfigMap",
            Self::Patch => "`PATCH` of a ConfigMap with a JSON merge patch: one of three entries",
            Self::ListPages => "`GET` of all ConfigMaps in pages of 500; a page is counted",
            Self::ListAll => "`GET` of all ConfigMaps at once",
            Self::Delete => "`DELETE` of a ConfigMap",
        }
    }

    /// The counted unit.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Create => "creates",
            Self::Patch => "patches",
            Self::ListPages => "pages",
            Self::ListAll => "lists",
            Self::Delete => "deletes",
        }
    }

    /// The number of concurrent requests.
    pub(crate) fn clients(self, writers: usize) -> usize {
        match self {
            Self::Create | Self::Patch | Self::Delete => writers,
            Self::ListPages => PAGE_CLIENTS,
            Self::ListAll => LIST_CLIENTS,
        }
    }

    /// Runs one turn. Writers use the turn's objects; readers expect `total` of them.
    ///
    /// # Errors
    /// On the first unexpected response.
    pub(crate) async fn turn(self, http: &Http, turn: &Turn) -> Result<Tally> {
        let start = Instant::now();
        let clients = self.clients(turn.writers);
        let taken = match self {
            Self::ListPages => each(0..LISTS, clients, |client| list(http, client, turn.total, Some(PAGE))).await,
            Self::ListAll => each(0..LISTS, clients, |client| list(http, client, turn.total, None)).await,
            _ => each(turn.objects.clone(), clients, |number| self.write(http, number, turn.round)).await,
        };
        let mut tally = Tally::new();
        tally.elapsed = start.elapsed();
        for time in taken.with_context(|| format!("{} failed", self.name()))? {
            tally.latency.saturating_record(time.as_nanos() as u64);
            tally.operations += 1;
        }
        Ok(tally)
    }

    async fn write(self, http: &Http, number: u64, round: u64) -> Result<Vec<Duration>> {
        let (client, path, start) = (number as usize, objects::path(number), Instant::now());
        let answer = match self {
            Self::Create => http.post(client, &objects::folder(number), objects::object(number)).await?,
            Self::Patch => http.patch(client, &path, objects::patch(round << 32 | number)).await?,
            _ => http.delete(client, &path).await?,
        };
        ensure!(!answer.is_empty(), "{path}: empty response");
        Ok(vec![start.elapsed()])
    }
}

/// The parameters of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// Numbers of the written objects.
    pub(crate) objects: Range<u64>,
    /// Number of existing objects during reads.
    pub(crate) total: u64,
    /// Distinguishes the patches of different rounds.
    pub(crate) round: u64,
    /// Concurrent writes.
    pub(crate) writers: usize,
}

/// Runs `one` for each number and returns the time of every request.
async fn each<F>(numbers: Range<u64>, clients: usize, one: impl Fn(u64) -> F) -> Result<Vec<Duration>>
where
    F: Future<Output = Result<Vec<Duration>>>,
{
    let taken: Vec<_> = stream::iter(numbers).map(one).buffer_unordered(clients).try_collect().await?;
    Ok(taken.concat())
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    items: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Lists all objects, in pages or at once, and checks their number.
async fn list(http: &Http, client: u64, expected: u64, page: Option<u64>) -> Result<Vec<Duration>> {
    let mut taken = Vec::new();
    let first = match page {
        Some(page) => format!("{}?limit={page}", objects::ALL),
        None => objects::ALL.to_owned(),
    };
    let (mut found, mut path) = (0, first.clone());
    loop {
        let start = Instant::now();
        let answer = http.get(client as usize, &path).await?;
        taken.push(start.elapsed());
        let List { metadata, items } = serde_json::from_slice(&answer).context("cannot decode the list")?;
        found += items.len() as u64;
        if metadata.next.is_empty() {
            break;
        }
        // The token is URL-safe base64.
        path = format!("{first}&continue={}", metadata.next);
    }
    // Kubernetes itself has a few.
    ensure!((expected..expected + 100).contains(&found), "{found} objects were listed instead of {expected}");
    Ok(taken)
}
