//! The Secret with the certificates, which all replicas share.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::watch;

use super::certificates::{CertificateLifetimes, Pair, Stored, Times, plan};
use super::configuration::Registration;
use super::tls::Served;
use crate::error::chain;
use crate::health::Awaited;

/// Annotation of a Secret that is ours, with times and names.
const TIMES: &str = "framework.trishanku.org/webhook-certificates";
/// Timers are not as long as the lifetime of an authority.
const LONGEST: Duration = Duration::from_hours(1);
/// Times are in whole seconds.
const SHORTEST: Duration = Duration::from_secs(1);
/// Time before the next attempt after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// The authorities to trust, in PEM.
pub(super) type Trust = String;

/// Keeps the certificates.
pub(super) struct Keeper {
    api: Api<Secret>,
    name: String,
    names: Vec<String>,
    lifetimes: CertificateLifetimes,
    served: Served,
    trust: watch::Sender<Option<Trust>>,
    /// What this replica has registered, if it leads.
    registered: watch::Receiver<Option<Trust>>,
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        registration: &Registration,
        lifetimes: CertificateLifetimes,
        served: Served,
        trust: watch::Sender<Option<Trust>>,
        registered: watch::Receiver<Option<Trust>>,
    ) -> Self {
        let (name, names) = (registration.secret(), registration.endpoint.names());
        let api = Api::namespaced(client, &registration.endpoint.namespace);
        Self { api, name, names, lifetimes, served, trust, registered }
    }

    /// Serves the certificates of the Secret, creates it, and renews them. Does not end.
    pub(super) async fn keep(mut self, awaited: Awaited) {
        let mut awaited = Some(awaited);
        let mut secrets = Box::pin(watcher::watch_object(self.api.clone(), &self.name));
        let mut known: Option<Option<Secret>> = None;
        let mut pause = Duration::MAX;
        loop {
            tokio::select! {
                Some(seen) = secrets.next() => match seen {
                    Ok(secret) => known = Some(secret),
                    Err(error) => {
                        tracing::warn!(secret = self.name, error = chain(&error), "cannot watch the certificates of webhooks");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
                // The next authority may issue once it is registered.
                Ok(()) = self.registered.changed(), if known.is_some() => {}
                () = tokio::time::sleep(pause.min(LONGEST)), if known.is_some() => {}
            }
            let Some(secret) = &known else { continue };
            pause = match self.step(secret.as_ref()).await {
                Ok(pause) => {
                    if self.served.config().is_some()
                        && let Some(awaited) = awaited.take()
                    {
                        awaited.ready();
                    }
                    pause
                }
                Err(problem) => {
                    tracing::warn!(secret = self.name, problem, "cannot keep the certificates of webhooks");
                    PAUSE
                }
            };
        }
    }

    /// Uses what the Secret has, or writes what it is to have; then the watch delivers it.
    async fn step(&self, secret: Option<&Secret>) -> Result<Duration, String> {
        let now = OffsetDateTime::now_utc();
        let stored = secret.and_then(read);
        if let Some(theirs) = secret.filter(|secret| !is_ours(secret, stored.as_ref())) {
            let [certificate, key, authorities] = ["tls.crt", "tls.key", "ca.crt"].map(|field| text(theirs, field));
            let missing = |field| format!("the Secret is not ours, and has no {field}");
            let certificate = certificate.ok_or_else(|| missing("tls.crt"))?;
            self.serve(&Pair { certificate, key: key.ok_or_else(|| missing("tls.key"))? })?;
            self.trusts(authorities.ok_or_else(|| missing("ca.crt"))?);
            return Ok(LONGEST);
        }
        // Also if something is due that cannot be written now: hooks may be needed for that very write.
        if let Some(stored) = &stored {
            self.serve(&stored.serving)?;
            self.trusts(stored.bundle());
        }
        let is_registered = stored.as_ref().is_some_and(|stored| *self.registered.borrow() == Some(stored.bundle()));
        let planned = plan(stored.clone(), &self.names, &self.lifetimes, now, is_registered);
        let (wanted, lasts) = planned.map_err(|error| error.to_string())?;
        if stored.as_ref() == Some(&wanted) {
            return Ok(lasts.max(SHORTEST));
        }
        let mut next = Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
        next.metadata = secret.map_or_else(ObjectMeta::default, |secret| secret.metadata.clone());
        next.metadata.name = Some(self.name.clone());
        write(&mut next, &wanted).map_err(|error| error.to_string())?;
        let written = match secret {
            None => self.api.create(&PostParams::default(), &next).await.map(drop),
            // With the version that was read: of two replicas, one is refused.
            Some(_) => self.api.replace(&self.name, &PostParams::default(), &next).await.map(drop),
        };
        match written {
            // The watch delivers it.
            Ok(()) => Ok(LONGEST),
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => Ok(PAUSE),
            Err(error) => Err(chain(&error)),
        }
    }

    fn serve(&self, pair: &Pair) -> Result<(), String> {
        self.served.set(pair).map_err(|error| error.to_string())
    }

    fn trusts(&self, authorities: Trust) {
        self.trust.send_if_modified(|trust| {
            let is_new = trust.as_ref() != Some(&authorities);
            *trust = Some(authorities);
            is_new
        });
    }
}

/// Returns whether the Secret is ours: it has our annotation, and the authorities in it are those that we put there.
fn is_ours(secret: &Secret, stored: Option<&Stored>) -> bool {
    let is_marked = secret.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(TIMES));
    is_marked && stored.is_none_or(|stored| text(secret, "ca.crt").is_none_or(|present| present == stored.bundle()))
}

fn text(secret: &Secret, field: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(field)?;
    String::from_utf8(value.0.clone()).ok().filter(|text| !text.is_empty())
}

/// Returns what is stored; nothing if it is damaged.
fn read(secret: &Secret) -> Option<Stored> {
    let times: Times = serde_json::from_str(secret.metadata.annotations.as_ref()?.get(TIMES)?).ok()?;
    let pair = |certificate, key| Some(Pair { certificate: text(secret, certificate)?, key: text(secret, key)? });
    Some(Stored {
        serving: pair("tls.crt", "tls.key")?,
        authority: pair("authority.crt", "authority.key")?,
        next: pair("next.crt", "next.key"),
        former: text(secret, "former.crt"),
        times,
    })
}

fn write(secret: &mut Secret, stored: &Stored) -> serde_json::Result<()> {
    let Stored { serving, authority, next, former, times } = stored;
    let mut data = vec![
        ("tls.crt", serving.certificate.clone()),
        ("tls.key", serving.key.clone()),
        ("ca.crt", stored.bundle()),
        ("authority.crt", authority.certificate.clone()),
        ("authority.key", authority.key.clone()),
    ];
    data.extend(next.iter().flat_map(|next| [("next.crt", next.certificate.clone()), ("next.key", next.key.clone())]));
    data.extend(former.iter().map(|former| ("former.crt", former.clone())));
    let data = data.into_iter().map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes())));
    secret.data = Some(data.collect());
    let times = serde_json::to_string(times)?;
    secret.metadata.annotations.get_or_insert_default().insert(TIMES.to_owned(), times);
    Ok(())
}
