//! Which certificates there are to be: a function of the present ones and the time.
//!
//! An authority is replaced in three steps, each at least [`CertificateLifetimes::settles`] apart, so that every apiserver trusts an authority
//! before it is asked to, and for as long as anything of it is in use: the next one is trusted; it issues; the former one is no
//! longer trusted.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// How long certificates and authorities are valid, and when they are replaced. Contradictory lifetimes are brought into order: nothing
/// is used for more than two thirds of its validity, nor is a certificate valid for less than an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetimes {
    /// Validity of a certificate; by default 90 days.
    pub valid: Duration,
    /// When it is renewed; by default after 60 days.
    pub renewed_after: Duration,
    /// Validity of an authority; by default ten years.
    pub authority_valid: Duration,
    /// When it is replaced; by default after five years.
    pub authority_replaced_after: Duration,
    /// How long apiservers may take to notice that another authority is trusted; by default an hour.
    pub settles: Duration,
}

impl CertificateLifetimes {
    /// Returns lifetimes under which nothing expires before it is replaced.
    pub(super) fn sound(self) -> Self {
        let valid = self.valid.max(Duration::from_hours(1));
        let settles = self.settles.max(Duration::from_secs(1));
        let authority_valid = self.authority_valid.max(valid * 4).max(settles * 8);
        Self {
            valid,
            renewed_after: self.renewed_after.min(valid / 3 * 2),
            authority_valid,
            authority_replaced_after: self.authority_replaced_after.min(authority_valid / 2),
            settles,
        }
    }
}

impl Default for CertificateLifetimes {
    fn default() -> Self {
        let days = |days: u64| Duration::from_hours(24 * days);
        Self {
            valid: days(90),
            renewed_after: days(60),
            authority_valid: days(3650),
            authority_replaced_after: days(1825),
            settles: Duration::from_hours(1),
        }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Everything that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) serving: Pair,
    pub(super) authority: Pair,
    /// The next authority, which is trusted already.
    pub(super) next: Option<Pair>,
    /// The former one, which is still trusted.
    pub(super) former: Option<String>,
    pub(super) times: Times,
}

/// Times in seconds since 1970, and the names in the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Times {
    pub(super) names: Vec<String>,
    pub(super) issued: i64,
    pub(super) authority_since: i64,
    /// Of the last step in the replacement of the authority.
    pub(super) step: i64,
}

impl Stored {
    /// The certificates of all authorities to trust.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.certificate.as_str());
        [Some(self.authority.certificate.as_str()), next, self.former.as_deref()].into_iter().flatten().collect()
    }
}

/// Returns the desired certificates, and how long this result holds unless `is_registered` changes. The next authority issues only
/// once it `is_registered`: the configurations name it.
pub(super) fn plan(
    stored: Option<Stored>,
    names: &[String],
    lifetimes: &CertificateLifetimes,
    now: OffsetDateTime,
    is_registered: bool,
) -> Result<(Stored, Duration), rcgen::Error> {
    let second = now.unix_timestamp();
    let Some(mut stored) = stored else {
        let authority = authority(lifetimes, now)?;
        let serving = issue(&authority, names, lifetimes, now)?;
        let times = Times { names: names.to_vec(), issued: second, authority_since: second, step: second };
        let stored = Stored { serving, authority, next: None, former: None, times };
        let lasts = until(&stored, lifetimes, second, is_registered);
        return Ok((stored, lasts));
    };
    let is_past = |since: i64, after: Duration| second - since >= seconds(after);
    let has_settled = is_past(stored.times.step, lifetimes.settles);
    if stored.next.is_none()
        && stored.former.is_none()
        && is_past(stored.times.authority_since, lifetimes.authority_replaced_after)
    {
        stored.next = Some(authority(lifetimes, now)?);
        stored.times.step = second;
    } else if let Some(next) = stored.next.take_if(|_| has_settled && is_registered) {
        stored.former = Some(std::mem::replace(&mut stored.authority, next).certificate);
        (stored.times.step, stored.times.authority_since) = (second, second);
        // Issued by the former one.
        stored.times.issued = i64::MIN;
    } else if has_settled && stored.next.is_none() {
        stored.former = None;
    }
    let is_due = stored.times.issued == i64::MIN || is_past(stored.times.issued, lifetimes.renewed_after);
    let missing: Vec<_> = names.iter().filter(|name| !stored.times.names.contains(name)).cloned().collect();
    if is_due || !missing.is_empty() {
        // Replicas of another version, with other names, may use it at the same time. A renewal forgets their names.
        let kept = stored.times.names.iter().filter(|_| !is_due).cloned();
        let names: Vec<_> = if is_due { names.to_vec() } else { kept.chain(missing).collect() };
        stored.serving = issue(&stored.authority, &names, lifetimes, now)?;
        (stored.times.issued, stored.times.names) = (second, names);
    }
    let lasts = until(&stored, lifetimes, second, is_registered);
    Ok((stored, lasts))
}

/// Returns how long there is nothing to do.
fn until(stored: &Stored, lifetimes: &CertificateLifetimes, now: i64, is_registered: bool) -> Duration {
    let renewal = stored.times.issued.saturating_add(seconds(lifetimes.renewed_after));
    let step = match (&stored.next, &stored.former) {
        (None, None) => stored.times.authority_since.saturating_add(seconds(lifetimes.authority_replaced_after)),
        // It waits for its registration, which is not a matter of time.
        (Some(_), _) if !is_registered => i64::MAX,
        _ => stored.times.step.saturating_add(seconds(lifetimes.settles)),
    };
    Duration::from_secs(u64::try_from(renewal.min(step).saturating_sub(now)).unwrap_or_default())
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn validity(parameters: &mut CertificateParams, now: OffsetDateTime, valid: Duration) {
    // Tolerance for clock differences.
    parameters.not_before = now - Duration::from_hours(1);
    parameters.not_after = now + valid;
}

fn named(parameters: &mut CertificateParams, name: &str) {
    parameters.distinguished_name.push(DnType::CommonName, name);
}

fn of_authority(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    named(&mut parameters, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

const AUTHORITY: &str = "webhooks";

fn authority(lifetimes: &CertificateLifetimes, now: OffsetDateTime) -> Result<Pair, rcgen::Error> {
    let (key, mut parameters) = (KeyPair::generate()?, of_authority(AUTHORITY));
    validity(&mut parameters, now, lifetimes.authority_valid);
    let certificate = parameters.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn issue(
    authority: &Pair,
    names: &[String],
    lifetimes: &CertificateLifetimes,
    now: OffsetDateTime,
) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names.to_vec())?;
    named(&mut parameters, names.first().map_or(AUTHORITY, String::as_str));
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    validity(&mut parameters, now, lifetimes.valid);
    let issuer = Issuer::new(of_authority(AUTHORITY), KeyPair::from_pem(&authority.key)?);
    let certificate = parameters.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn whatever_is_served_is_trusted_before_and_for_long_enough_after() {
        let lifetimes = CertificateLifetimes {
            renewed_after: Duration::from_secs(10),
            authority_replaced_after: Duration::from_secs(35),
            settles: Duration::from_secs(5),
            ..CertificateLifetimes::default()
        };
        let names = ["a.b.svc".to_owned()];
        let (mut stored, mut due) = plan(None, &names, &lifetimes, at(0), false).unwrap();
        // Of every second: what was served with which authority, and what was trusted.
        let mut history =
            vec![(stored.authority.certificate.clone(), stored.serving.certificate.clone(), stored.bundle())];
        let mut next_due = i64::try_from(due.as_secs()).unwrap();
        for second in 1..200 {
            let before = stored.clone();
            (stored, due) = plan(Some(stored), &names, &lifetimes, at(second), true).unwrap();
            if second < next_due {
                assert_eq!(stored, before, "nothing is due before {next_due}, but at {second}");
            }
            next_due = second + i64::try_from(due.as_secs()).unwrap();
            history.push((stored.authority.certificate.clone(), stored.serving.certificate.clone(), stored.bundle()));
        }
        for (second, (authority, ..)) in history.iter().enumerate().skip(5) {
            for (other, (.., trusted)) in history.iter().enumerate().skip(second - 4).take(5 + 4) {
                assert!(trusted.contains(authority), "what is served at {second} is trusted at {other}");
            }
        }
        let mut authorities: Vec<_> = history.iter().map(|(authority, ..)| authority).collect();
        authorities.dedup();
        let mut served: Vec<_> = history.iter().map(|(_, served, _)| served).collect();
        served.dedup();
        assert!(authorities.len() >= 4 && served.len() >= 15, "{} {}", authorities.len(), served.len());
        let most = history.iter().map(|(.., bundle)| bundle.matches("BEGIN").count()).max();
        assert_eq!(most, Some(2));
    }

    #[test]
    fn an_authority_that_is_not_registered_does_not_issue_however_old_the_others_are() {
        let (names, lifetimes) = (["a.b.svc".to_owned()], CertificateLifetimes::default());
        let (first, _) = plan(None, &names, &lifetimes, at(0), false).unwrap();
        let old = i64::try_from(lifetimes.authority_replaced_after.as_secs()).unwrap();
        let (next, _) = plan(Some(first.clone()), &names, &lifetimes, at(old), false).unwrap();
        assert!(next.next.is_some() && next.authority == first.authority);
        let (waiting, lasts) = plan(Some(next.clone()), &names, &lifetimes, at(old + 100_000), false).unwrap();
        let renewed_at = waiting.times.issued + i64::try_from(lifetimes.renewed_after.as_secs()).unwrap();
        let until_renewal = u64::try_from(renewed_at - at(old + 100_000).unix_timestamp()).unwrap();
        assert_eq!(lasts, Duration::from_secs(until_renewal), "nothing is due but a renewal");
        assert_eq!((waiting.authority.clone(), waiting.next.clone()), (first.authority.clone(), next.next));
        let (issues, _) = plan(Some(waiting), &names, &lifetimes, at(old + 100_001), true).unwrap();
        assert!(issues.authority != first.authority && issues.former == Some(first.authority.certificate));
    }

    #[test]
    fn replicas_with_different_names_share_a_certificate_and_do_not_replace_it_in_turns() {
        let (old, new) = (["a.b.svc".to_owned()], ["c.b.svc".to_owned()]);
        let (stored, _) = plan(None, &old, &CertificateLifetimes::default(), at(0), false).unwrap();
        let (both, _) = plan(Some(stored.clone()), &new, &CertificateLifetimes::default(), at(1), false).unwrap();
        assert_ne!(both.serving, stored.serving);
        assert_eq!((both.authority.clone(), both.times.names.clone()), (stored.authority, [old.clone(), new].concat()));
        let (same, _) = plan(Some(both.clone()), &old, &CertificateLifetimes::default(), at(2), false).unwrap();
        assert_eq!(same, both);
    }

    #[test]
    fn contradictory_lifetimes_are_brought_into_order() {
        let lifetimes = CertificateLifetimes {
            valid: Duration::from_hours(24),
            settles: Duration::ZERO,
            ..CertificateLifetimes::default()
        }
        .sound();
        assert_eq!((lifetimes.renewed_after, lifetimes.settles), (Duration::from_hours(16), Duration::from_secs(1)));
        assert_eq!(CertificateLifetimes::default().sound(), CertificateLifetimes::default());
    }
}
