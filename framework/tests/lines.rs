//! The log of a write. A test binary of its own, because the subscriber is set once for a process.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use kube::{Client, Config, Resource};
use trishanku_framework::Manager;
use trishanku_framework::apply::{Applied, ApplySet, Owned};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Returns the text since the last call.
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client whose requests are answered with their own bodies.
fn echo() -> Client {
    let answer = |request: http::Request<Body>| async {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(http::Response::new(Body::from(body.to_vec())))
    };
    Client::new(tower::service_fn(answer), "default")
}

fn named<K: Resource + Default>(name: &str) -> K {
    let mut object = K::default();
    let metadata = object.meta_mut();
    (metadata.name, metadata.namespace) = (Some(name.to_owned()), Some("plant".to_owned()));
    metadata.uid = Some("1".to_owned());
    object
}

#[tokio::test]
async fn every_field_that_changes_is_a_line_and_secrets_are_in_none() {
    let (lines, manager) = (Lines::default(), Manager::new(Config::new("http://127.0.0.1:1".parse().unwrap())));
    let maps = Owned::without_trigger(manager.caches().cache::<ConfigMap>());
    let secrets = Owned::without_trigger(manager.caches().cache::<Secret>());
    let owner: ConfigMap = named("tank");
    let level = || ConfigMap { data: Some([("level".to_owned(), "3".to_owned())].into()), ..named("level") };
    let data = [("password".to_owned(), ByteString(b"open sesame".to_vec()))];
    let secret = || Secret { data: Some(data.clone().into()), ..named("secret") };
    let write = async |set: &mut ApplySet<'_, ConfigMap>| {
        let wanted = (set.apply(level(), &maps).await.unwrap(), set.apply(secret(), &secrets).await.unwrap());
        assert_eq!(wanted, (Applied::Written, Applied::Written));
    };
    let writer = lines.clone();
    let (filter, of_debug) = ("trishanku_framework::apply=debug", r#"changed + data.level: "3""#);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter);
    tracing::dispatcher::set_global_default(subscriber.with_writer(move || writer.clone()).finish().into()).unwrap();

    write(&mut ApplySet::of(&owner, echo(), "test").dry_run()).await;
    let logged = lines.take();
    let line = r#"INFO trishanku_framework::apply: would change + data.level: "3" kind=ConfigMap object=plant/level"#;
    assert!(logged.contains(line), "{logged}");
    assert!(logged.contains("would change + data.password: (hidden)") && !logged.contains(of_debug), "{logged}");

    let mut set = ApplySet::of(&owner, echo(), "test");
    write(&mut set).await;
    assert!(set.planned().is_empty());
    let more = lines.take();
    assert!(more.contains(of_debug) && more.contains("DEBUG") && !more.contains("would"), "{more}");
    assert!(more.contains("changed + data.password: (hidden)"), "{more}");
    for secret in ["open sesame", "b3BlbiBzZXNhbWU"] {
        assert!(!logged.contains(secret) && !more.contains(secret), "{logged}{more}");
    }
}
