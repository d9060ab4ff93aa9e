//! The flags of `gitcd serve` that show the past.

use anyhow::bail;
use gitcd_history::when::When;
use gitcd_server::server::PastMoment;

#[derive(Debug, clap::Args)]
pub(super) struct PastFlags {
    /// Serve the branch as it was at a moment, read only: a revision (4711), how long ago (10m), a time (2026-11-22,
    /// '2026-11-22 15:04', 2026-11-22T15:04:05Z), or a commit. The branch may be served meanwhile, and is not changed
    #[arg(long, env = "GITCD_AT", value_parser = When::parse, value_name = "WHEN")]
    at: Option<When>,
    /// Answer reads at compacted revisions from Git, which takes longer than a read from memory. A revision that Git does not
    /// have exactly is refused
    #[arg(long, env = "GITCD_HISTORY", value_enum, default_value_t, value_name = "WHERE")]
    history: HistorySource,
}

/// Where reads at compacted revisions are answered from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum HistorySource {
    /// They are refused, as in etcd
    #[default]
    None,
    /// From the history of the branch
    Git,
}

impl PastFlags {
    /// Returns the moment to serve, if one is given; `find_prefix` if the branch has no key prefix in the flags.
    pub(super) fn moment(&self, find_prefix: bool) -> Option<PastMoment> {
        self.at.map(|when| PastMoment { when, find_prefix })
    }

    /// Returns whether ranges at compacted revisions are answered from Git.
    pub(super) fn reads_git(&self) -> bool {
        self.history == HistorySource::Git
    }

    /// Checks that no flag contradicts `--at`. `flags` are all that do, and whether each is given.
    ///
    /// # Errors
    /// The names of those that are given.
    pub(super) fn check(&self, flags: &[(&str, bool)]) -> anyhow::Result<()> {
        let given: Vec<_> = flags.iter().filter(|(_, given)| *given).map(|(flag, _)| format!("--{flag}")).collect();
        if self.at.is_some() && !given.is_empty() {
            bail!(
                "--at serves the past, read only, and cannot be combined with {}; remove --at, or these flags, which may be from the environment or from --config",
                given.join(", ")
            );
        }
        Ok(())
    }
}
