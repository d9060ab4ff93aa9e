//! Random injections into random pods: what `finish` accepts, a real kube-apiserver accepts.
//!
//! `INJECT_CASES` sets the number of accepted injections, `INJECT_SEED` repeats those of a seed.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::Api;
use kube::api::PostParams;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use trishanku_framework::inject::{InjectError, Injector};
use trishanku_testkit::TestCluster;

use self::injection::{Injection, injections};
use self::users::users;

mod injection;
mod users;

const CASES: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap())
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn drawn<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, runner: &mut TestRunner) -> T {
    strategy.new_tree(runner).unwrap().current()
}

fn inject(injection: &Injection, users: &PodTemplateSpec) -> Result<PodTemplateSpec, InjectError> {
    Injector::new(users.clone()).with(|pod| injection.build(pod)).finish()
}

fn recognises(injection: &Injection, injected: &PodTemplateSpec, case: &str) {
    match inject(injection, injected) {
        Ok(again) => assert!(again == *injected, "injecting twice does not equal injecting once: {case}"),
        Err(error) => panic!("{error}\n{case}"),
    }
}

fn pod(template: &PodTemplateSpec) -> Pod {
    let mut pod =
        Pod { metadata: template.metadata.clone().unwrap_or_default(), spec: template.spec.clone(), ..Pod::default() };
    pod.metadata.name = Some("random".to_owned());
    pod
}

#[tokio::test]
async fn what_is_accepted_here_an_apiserver_accepts_and_recognises() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("INJECT_SEED").unwrap_or(now.subsec_nanos().into());
    let cases = number("INJECT_CASES").unwrap_or(CASES);
    println!("INJECT_SEED={seed}");
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("random").await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };

    let (mut runner, users, injections) = (runner(seed), users(), injections());
    let (mut accepted, mut drawn_cases) = (0, 0);
    while accepted < cases {
        drawn_cases += 1;
        assert!(drawn_cases <= cases * 30, "{accepted} of {drawn_cases} injections were accepted, which proves little");
        let (users, injection) = (drawn(&users, &mut runner), drawn(&injections, &mut runner));
        let case = format!(
            "case {drawn_cases} of seed {seed}: {injection:#?} into {}",
            serde_json::to_string(&users).unwrap()
        );
        let injected = match inject(&injection, &users) {
            Ok(injected) => injected,
            Err(error) => {
                assert_eq!(inject(&injection, &users).unwrap_err(), error, "{case}");
                continue;
            }
        };
        accepted += 1;
        recognises(&injection, &injected, &case);
        let stored = match pods.create(&dry_run, &pod(&injected)).await {
            Ok(stored) => stored,
            Err(error) => panic!("{error}\n{case}"),
        };
        recognises(&injection, &PodTemplateSpec { metadata: Some(stored.metadata), spec: stored.spec }, &case);
    }
    println!("{accepted} of {drawn_cases} injections were accepted");
}
