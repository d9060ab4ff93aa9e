//! The flags for audit events of kube-apiserver.

use std::time::Duration;

use anyhow::bail;
use gitcd_engine::audit::Settings;
use gitcd_net::tls;
use gitcd_server::audit::Config;
use gitcd_server::config::{PerBranch, listen_urls};

use super::super::{duration, per_branch};

/// The longest wait where others follow the branch: a commit that waits reaches them later.
const MAX_WAIT_FOLLOWED: Duration = Duration::from_millis(250);
/// Longest `--audit-wait`. Commits of a busy branch must not fall behind.
const MAX_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(super) struct AuditFlags {
    #[arg(
        long,
        env = "GITCD_LISTEN_AUDIT_URLS",
        value_name = "MAP",
        help = "URLs of an audit webhook for kube-apiserver, separated by ';': POST /audit. Commits then name the user that \
                made a change. For https, with the certificates of --tls-cert and related flags, and clients need a \
                certificate; http is only for loopback addresses [default: none]"
    )]
    listen_audit_urls: Option<String>,
    /// An audit log file of kube-apiserver in JSON, which is followed for the same purpose [default: none]
    #[arg(long, env = "GITCD_AUDIT_LOG_FILE", value_name = "MAP")]
    audit_log_file: Option<String>,
    /// How long a commit waits for the audit events of its revisions; at most 250ms on a branch with remotes
    #[arg(long, env = "GITCD_AUDIT_WAIT", default_value = "1s", value_parser = wait, value_name = "DURATION")]
    audit_wait: Duration,
    /// By how much the clock of kube-apiserver may differ, if it runs on another machine. With a large value, a request that
    /// changes nothing can be taken for an earlier change
    #[arg(
        long,
        env = "GITCD_AUDIT_CLOCK_TOLERANCE",
        default_value = "0s",
        value_parser = duration::parse,
        value_name = "DURATION"
    )]
    audit_clock_tolerance: Duration,
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration::parse(text)?;
    if wait > MAX_WAIT { Err(format!("commits must not wait for more than {}s", MAX_WAIT.as_secs())) } else { Ok(wait) }
}

/// The flags' values by branch.
#[derive(Debug)]
pub(super) struct Audits {
    urls: PerBranch,
    log_files: PerBranch,
    settings: Settings,
}

impl AuditFlags {
    pub(super) fn read(&self) -> anyhow::Result<Audits> {
        Ok(Audits {
            urls: per_branch("listen-audit-urls", self.listen_audit_urls.as_deref())?,
            log_files: per_branch("audit-log-file", self.audit_log_file.as_deref())?,
            settings: Settings { wait: self.audit_wait, clock_tolerance: self.audit_clock_tolerance },
        })
    }
}

impl Audits {
    pub(super) fn urls(&self) -> &PerBranch {
        &self.urls
    }

    pub(super) fn log_files(&self) -> &PerBranch {
        &self.log_files
    }

    /// Returns the configuration of a branch with these certificates, which others follow or not.
    pub(super) fn of(&self, name: &str, tls: Option<&tls::Files>, is_followed: bool) -> anyhow::Result<Config> {
        let listen = listen_urls("listen-audit-urls", self.urls.of(name).unwrap_or_default())?;
        let log_file = self.log_files.of(name).map(Into::into);
        let has_authority = tls.is_some_and(|files| files.trusted_ca.is_some());
        for url in &listen {
            let address = url.address;
            // The clients of the listener determine the names in the history.
            if url.tls && !has_authority {
                bail!(
                    "branch {name:?}: https://{address} in --listen-audit-urls accepts only clients with a certificate; \
                     set --tls-cert, --tls-key and --tls-trusted-ca-certs"
                );
            }
            if !url.tls && !address.ip().is_loopback() {
                bail!(
                    "branch {name:?}: http://{address} in --listen-audit-urls would accept events from other machines \
                     without a certificate; use https, or a loopback address"
                );
            }
        }
        if listen.is_empty() && log_file.is_none() {
            return Ok(Config::default());
        }
        let mut settings = self.settings;
        if is_followed {
            settings.wait = settings.wait.min(MAX_WAIT_FOLLOWED);
        }
        Ok(Config { settings: Some(settings), listen, log_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audits(urls: &str, log_files: &str) -> Audits {
        let map = |flag: &str, value: &str| PerBranch::parse(flag, value).expect("the value is valid");
        let settings = Settings { wait: Duration::from_secs(1), clock_tolerance: Duration::ZERO };
        Audits { urls: map("listen-audit-urls", urls), log_files: map("audit-log-file", log_files), settings }
    }

    #[test]
    fn other_machines_need_a_certificate() {
        let files = |trusted_ca: Option<&str>| tls::Files {
            cert: "a".into(),
            key: "b".into(),
            trusted_ca: trusted_ca.map(Into::into),
        };
        let of = |url: &str, files: Option<&tls::Files>| audits(url, "").of("default", files, false);
        for (url, files, remedy) in [
            ("http://10.0.0.1:1", None, "use https"),
            ("https://10.0.0.1:1", Some(files(None)), "--tls-trusted-ca-certs"),
            ("https://127.0.0.1:1", Some(files(None)), "--tls-trusted-ca-certs"),
            ("https://127.0.0.1:1", None, "--tls-cert"),
        ] {
            let said = of(url, files.as_ref()).expect_err(url).to_string();
            assert!(said.contains(remedy) && said.contains(url), "{said}");
        }
        assert!(of("http://127.0.0.1:1", None).expect("it is loopback").settings.is_some());
        assert!(
            of("https://10.0.0.1:1", Some(&files(Some("c")))).expect("clients need a certificate").settings.is_some()
        );
    }

    #[test]
    fn commits_name_users_only_if_there_is_a_source_of_events() {
        let none = audits("", "").of("default", None, false).expect("nothing is configured");
        assert_eq!((none.settings, none.log_file), (None, None));
        let file = audits("", "/var/log/audit.log").of("default", None, true).expect("a file is configured");
        assert_eq!(file.settings.map(|settings| settings.wait), Some(MAX_WAIT_FOLLOWED));
        assert_eq!(audits("", "other=/x").of("default", None, false).expect("it is of another branch").log_file, None);
        assert!(wait("31s").is_err() && wait("0s") == Ok(Duration::ZERO));
    }
}
