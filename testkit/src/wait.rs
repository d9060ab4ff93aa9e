//! Waiting for conditions, with failures that tell what was there instead.

use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

use kube::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Long enough for anything that does not hang, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A single look may take so long, however little patience there is.
const LEAST_LOOK: Duration = Duration::from_secs(5);

/// It never was so. Its `Debug` is its text, so that a test which ends with it can be read.
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

/// Looks until there is something, at most for [`PATIENCE`]. What is there instead is part of the failure.
///
/// # Errors
/// [`TimedOut`] with `what` was waited for and the last `Err`.
pub async fn until<T, I: Display>(
    what: impl Display,
    mut look: impl AsyncFnMut() -> Result<T, I>,
) -> Result<T, TimedOut> {
    until_within(PATIENCE, what, &mut look).await
}

/// [`until`] with another patience.
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
        // A look that hangs must not make the wait hang.
        let seen = tokio::time::timeout(patience.max(LEAST_LOOK), look()).await;
        let instead = match seen {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(instead)) => instead.to_string(),
            Err(_) => "looking never ended".to_owned(),
        };
        if start.elapsed() >= patience {
            return Err(TimedOut { what: what.to_string(), waited: start.elapsed(), instead });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks at an object until it is as `condition` says, at most for [`PATIENCE`]; returns it. Errors count as "not yet".
///
/// # Errors
/// [`TimedOut`] with the object as it was last.
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

/// Looks until there is no such object, at most for [`PATIENCE`].
///
/// # Errors
/// [`TimedOut`] with the object as it was last.
pub async fn until_gone<K>(api: &Api<K>, name: &str) -> Result<(), TimedOut>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    until(format!("the end of {name}"), async || match api.get_opt(name).await {
        Ok(None) => Ok(()),
        Ok(Some(object)) => Err(format!("it is {}", text(&object))),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// The object for a person: without what nobody wants to read.
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
    async fn what_was_there_instead_is_told() {
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
