//! Service account tokens on a real kube-apiserver during the rotation of the signing key.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use trishanku_api::TrishankuHeavenSpec;
use trishanku_heaven::certificates::{Data, RenewalCriteria, Stored, issue};
use trishanku_heaven_plan::names;
use trishanku_testkit::TestCluster;

const ACCOUNTS: &str = "a-cert-service-account";

/// A kube-apiserver with the files of the Secret, as in a pod.
struct World {
    cluster: TestCluster,
    folder: TempDir,
    stored: BTreeMap<String, Stored>,
    now: OffsetDateTime,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut stored = BTreeMap::new();
        let now = OffsetDateTime::now_utc();
        write(&folder, &pass(&mut stored, now, None));
        let flag = |flag: &str, file: &str| format!("--{flag}={}", folder.path().join(file).display());
        let flags = [flag("service-account-key-file", "tls.crt"), flag("service-account-signing-key-file", "tls.key")];
        let cluster = TestCluster::with_flags(flags).await.unwrap();
        Self { cluster, folder, stored, now }
    }

    /// The Secret after some time.
    fn after(&mut self, time: Duration, reissues: bool) -> Data {
        self.now += time;
        pass(&mut self.stored, self.now, reissues.then_some(self.now))
    }

    /// Restarts with these files, as a pod does when its annotation changes.
    async fn begin_with(&self, files: &Data) {
        self.cluster.kill_apiserver().await;
        write(&self.folder, files);
        self.cluster.start_apiserver().await.unwrap();
    }

    async fn token(&self) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client(), "default");
        let made = accounts.create_token_request("app", &PostParams::default(), &TokenRequest::default()).await;
        made.unwrap().status.unwrap().token.unwrap()
    }

    async fn takes(&self, token: &str) -> bool {
        let review: TokenReview = serde_json::from_value(json!({"spec": {"token": token}})).unwrap();
        let reviews: Api<TokenReview> = Api::all(self.cluster.client());
        let status = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        let user = status.user.and_then(|user| user.username);
        status.authenticated == Some(true) && user.as_deref() == Some("system:serviceaccount:default:app")
    }
}

fn pass(stored: &mut BTreeMap<String, Stored>, now: OffsetDateTime, reissue_before: Option<OffsetDateTime>) -> Data {
    let names = names::Certificates::of("a", &TrishankuHeavenSpec::default());
    let there = stored.iter().map(|(name, stored)| (name.as_str(), stored.clone())).collect();
    let issued = issue(&names, None, &there, &RenewalCriteria { now, reissue_before }).unwrap();
    for wanted in issued.secrets {
        stored.insert(wanted.name, Stored { data: wanted.data, is_ours: true });
    }
    stored[ACCOUNTS].data.clone()
}

fn write(folder: &TempDir, files: &Data) {
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
}

/// The key id in a token.
fn key_of(token: &str) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    serde_json::from_slice::<Value>(&header).unwrap()["kid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tokens_are_taken_while_the_key_that_signs_them_is_followed_by_another_one() {
    let mut world = World::new().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster.client(), "default");
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "app"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let old = world.token().await;
    assert!(world.takes(&old).await);

    // It is announced: the old key still signs.
    let announced = world.after(Duration::days(1), true);
    world.begin_with(&announced).await;
    assert!(world.takes(&old).await);
    assert_eq!(key_of(&world.token().await), key_of(&old));

    // It signs, and tokens of the former key are accepted.
    let signs = world.after(Duration::days(1), false);
    world.begin_with(&signs).await;
    let new = world.token().await;
    assert_ne!(key_of(&new), key_of(&old));
    assert!(world.takes(&old).await && world.takes(&new).await);

    // A kube-apiserver that has not restarted since the announcement accepts its tokens.
    world.begin_with(&announced).await;
    assert!(world.takes(&new).await && world.takes(&old).await);

    // After a year, tokens of the former key have expired.
    let alone = world.after(Duration::days(367), false);
    world.begin_with(&alone).await;
    assert!(world.takes(&new).await && !world.takes(&old).await);
}
