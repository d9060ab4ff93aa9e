//! Waits for conditions. Failures show the last state.

use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

use kube::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Long enough for anything that does not hang, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Minimum time limit of a single check, however short the wait.
const LEAST_LOOK: Duration = Duration::from_secs(5);

/// The condition was never met. `Debug` prints the text of `Display`, so that a failed test is readable.
#[derive(thiserror::Error)]
#[error("waited {waited:?} for {what}, but {instead}")]
pub struct TimedOut {
    what: String,
    waited: Duration,
    instead: String,
}

impl Debug for TimedOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Display::fmt(self, f)
    }
}

/// Calls `look` until it returns `Ok`, at most for [`PATIENCE`].
///
/// # Errors
/// [`TimedOut`], with `what` and the last `Err`.
pub async fn until<T, I: Display>(
    what: impl Display,
    mut look: impl AsyncFnMut() -> Result<T, I>,
) -> Result<T, TimedOut> {
    until_within(PATIENCE, what, &mut look).await
}

/// As [`until`], with another limit.
///
/// # Errors
/// [`TimedOut`].
pub async fn until_within<T, I: Display>(
    patience: Duration,
    what: impl Display,
    mut look: impl AsyncFnMut() -> Result<T, I>,
) -> Result<T, TimedOut> {
    let start = Instant::now();
    loop {
        // A check that hangs must not make the wait hang.
        let seen = tokio::time::timeout(patience.max(LEAST_LOOK), look()).await;
        let instead = match seen {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(instead)) => instead.to_string(),
            Err(_) => "the check did not return".to_owned(),
        };
        if start.elapsed() >= patience {
            return Err(TimedOut { what: what.to_string(), waited: start.elapsed(), instead });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Reads an object until it meets `condition`, at most for [`PATIENCE`], and returns it. Errors count as "not yet".
///
/// # Errors
/// [`TimedOut`], with the last state of the object.
pub async fn until_object<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    condition: impl Fn(&K) -> bool,
) -> Result<K, TimedOut>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    until(format!("{name}: {what}"), async || match api.get_opt(name).await {
        Ok(Some(object)) if condition(&object) => Ok(object),
        Ok(Some(object)) => Err(format!("it is {}", text(&object))),
        Ok(None) => Err("there is no such object".to_owned()),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// Waits until the object is deleted, at most for [`PATIENCE`].
///
/// # Errors
/// [`TimedOut`], with the last state of the object.
pub async fn until_gone<K>(api: &Api<K>, name: &str) -> Result<(), TimedOut>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    until(format!("the deletion of {name}"), async || match api.get_opt(name).await {
        Ok(None) => Ok(()),
        Ok(Some(object)) => Err(format!("it is {}", text(&object))),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// Formats the object without `managedFields`.
fn text(object: &impl Serialize) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_wait_reports_the_last_state() {
        let mut looks = 0;
        let mut look = async || {
            looks += 1;
            if looks < 3 { Err(format!("{looks} of 3")) } else { Ok(looks) }
        };
        assert_eq!(until_within(PATIENCE, "the third", &mut look).await.unwrap(), 3);
        let never = async || Err::<(), _>("it is two");
        let error = until_within(Duration::ZERO, "three", never).await.unwrap_err();
        assert!(format!("{error:?}").ends_with("for three, but it is two"), "{error:?}");
    }
}
