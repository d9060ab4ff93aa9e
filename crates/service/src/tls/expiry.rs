//! Warnings about certificates that expire soon.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest time before expiry at which a warning starts. For short-lived certificates it is a fifth of their lifetime, so
/// that they are not always warned about.
const SOON: Duration = Duration::from_hours(30 * 24);

/// Warns about certificates in the file that are expired or not valid yet at `now`, or expire soon.
pub(super) fn warn(path: &Path, certificates: &[CertificateDer<'_>], now: SystemTime) {
    for certificate in certificates {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { continue };
        let validity = certificate.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        if let Some(problem) = problem(from, until, now) {
            let (path, subject) = (path.display(), certificate.subject());
            tracing::warn!(%path, %subject, from = %validity.not_before, until = %validity.not_after, "{problem}");
        }
    }
}

/// All times in seconds since the epoch.
fn problem(from: i64, until: i64, now: i64) -> Option<&'static str> {
    let soon = (SOON.as_secs() as i64).min(until.saturating_sub(from) / 5);
    if now > until {
        Some("a certificate has expired; renew it, no restart is needed")
    } else if now < from {
        Some("a certificate is not valid yet; check the clock of this machine")
    } else if until.saturating_sub(now) < soon {
        Some("a certificate is about to expire; renew it, no restart is needed")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    #[test]
    fn a_certificate_is_warned_of_before_its_end_and_short_lived_ones_not_all_the_time() {
        let year = |now| problem(0, 365 * DAY, now);
        assert_eq!(year(0), None);
        assert_eq!(year(335 * DAY), None);
        assert!(year(335 * DAY + 1).unwrap().contains("about to expire"));
        assert!(year(365 * DAY).unwrap().contains("about to expire"));
        assert!(year(365 * DAY + 1).unwrap().contains("has expired"));
        assert!(year(-1).unwrap().contains("not valid yet"));
        assert_eq!(problem(0, DAY, DAY * 4 / 5), None);
        assert!(problem(0, DAY, DAY * 4 / 5 + 1).is_some());
    }

    #[test]
    fn certificates_without_an_end_are_no_trouble() {
        assert_eq!(problem(0, i64::MAX, 1), None);
        assert_eq!(problem(i64::MIN, i64::MAX, 1), None);
        assert!(problem(i64::MAX, 0, 1).is_some(), "the end is before the start");
    }
}
