//! The effect of each field of a manifest on the pod.

use serde_json::{Value, json};
use trishanku_heaven_plan::plan::EntryPoints;

use crate::promises::spec;
use crate::support::{MADE, container, flag, heaven_pod, merge_pod, try_heaven};

/// The pod of the default manifest with these fields changed; paths use `/`.
fn with(fields: &[(&str, Value)]) -> Value {
    heaven_pod(&changed(fields))
}

fn changed(fields: &[(&str, Value)]) -> Value {
    let mut spec = spec();
    for (path, value) in fields {
        let mut place = &mut spec;
        for field in path.split('/') {
            place = match field.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[field],
            };
        }
        *place = value.clone();
    }
    spec
}

fn volume<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let found = pod["spec"]["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == name);
    found.unwrap_or_else(|| panic!("there is no volume {name}: {pod}"))
}

#[test]
fn images_and_when_they_are_pulled() {
    for (field, names, default) in [
        ("gitcd/gitcdImage", &["git-pre", "git-pre-desk", "gitcd-init", "gitcd"][..], "gitcd"),
        ("apiserver", &["kube-apiserver"], "kube-apiserver"),
        ("eventsEtcd/local", &["events-etcd"], "etcd"),
    ] {
        let pod = with(&[(field, json!({"image": "mine:2", "imagePullPolicy": "Always"}))]);
        let usual = with(&[(field, json!({}))]);
        for name in names {
            let ours = container(&pod, name);
            assert_eq!((&ours["image"], &ours["imagePullPolicy"]), (&json!("mine:2"), &json!("Always")));
            let ours = container(&usual, name);
            assert_eq!(ours["image"], format!("images.example.org/{default}:1"));
            assert!(ours["imagePullPolicy"].is_null());
        }
    }
    let pod = with(&[("gitcd/imagePullSecretName", json!("registry"))]);
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
}

#[test]
fn a_script_of_the_user_takes_the_place_of_the_preparation() {
    let spec =
        changed(&[("gitcd/gitImage", json!({"image": "git:2"})), ("app/entrypointsConfigMapName", json!("mine"))]);
    let pod = try_heaven(&spec, &EntryPoints { git_pre: true, gitcd_config: false }).unwrap();
    for (name, remote) in [("git-pre", "origin"), ("git-pre-desk", "desk")] {
        let script = container(&pod, name);
        assert_eq!(
            (&script["image"], &script["command"]),
            (&json!("git:2"), &json!(["/.trishanku/entrypoints/git-pre.sh"]))
        );
        assert_eq!((flag(script, "GITCD_REMOTE_NAME"), flag(script, "GITCD_REPO")), (Some(remote), Some("/root/repo")));
        assert!(script["args"].is_null());
    }
    let map = volume(&pod, "trishanku-entrypoints");
    assert_eq!(map["configMap"], json!({"name": "mine", "defaultMode": 0o755}));
    assert_eq!(container(&pod, "gitcd-init")["image"], "images.example.org/gitcd:1");
    assert_eq!(flag(container(&pod, "gitcd"), "config"), None);
    // Also without remotes.
    let spec = changed(&[("gitcd/git/remotes", json!([]))]);
    let pod = try_heaven(&spec, &EntryPoints { git_pre: true, gitcd_config: false }).unwrap();
    assert_eq!(container(&pod, "git-pre")["image"], "images.example.org/git:1");
}

#[test]
fn branches_and_remotes() {
    let pod = with(&[]);
    let gitcd = container(&pod, "gitcd");
    assert_eq!(flag(gitcd, "data-reference-names"), Some("default=refs/heads/main"));
    assert_eq!(flag(gitcd, "metadata-reference-names"), Some("default=refs/gitcd/metadata/main"));
    assert_eq!(flag(gitcd, "remote-names"), Some("default=origin:desk"));
    assert_eq!(flag(gitcd, "remote-data-reference-names"), Some("default=refs/heads/main:refs/heads/main"));
    assert_eq!(flag(gitcd, "key-prefixes"), Some("default=/registry"));
    let pod = with(&[
        ("gitcd/git/branches", json!({"data": "kcm/data", "metadata": "kcm/metadata", "failOnNoBranch": true})),
        ("gitcd/git/remotes/0/branches", json!({"data": "up/data", "failOnNoBranch": true})),
        ("gitcd/git/remotes/1/name", json!("lap")),
    ]);
    for name in ["gitcd-init", "gitcd"] {
        let gitcd = container(&pod, name);
        assert_eq!(flag(gitcd, "data-reference-names"), Some("default=refs/heads/kcm/data"));
        assert_eq!(flag(gitcd, "metadata-reference-names"), Some("default=refs/heads/kcm/metadata"));
        assert_eq!(flag(gitcd, "repo"), Some("/root/repo"));
    }
    assert_eq!(
        flag(container(&pod, "gitcd"), "remote-data-reference-names"),
        Some("default=refs/heads/up/data:refs/heads/kcm/data")
    );
    let [first, second] = ["git-pre", "git-pre-lap"].map(|name| container(&pod, name));
    assert_eq!(
        (flag(first, "GITCD_REMOTE_URL"), flag(second, "GITCD_REMOTE_URL")),
        (Some("https://git.example.org/x.git"), Some("/desk"))
    );
    assert_eq!(
        (flag(first, "GITCD_FAIL_ON_NO_BRANCH"), flag(second, "GITCD_FAIL_ON_NO_BRANCH")),
        (Some("true"), Some("false"))
    );
    assert_eq!(flag(first, "GITCD_FAIL_ON_NO_REMOTE_BRANCH"), Some("true"));
    assert_eq!((flag(first, "GITCD_CLONE"), flag(second, "GITCD_CLONE")), (Some("true"), Some("false")));
}

#[test]
fn conflicts_and_retention() {
    let gitcd = |fields: &[(&str, Value)]| container(&with(fields), "gitcd").clone();
    assert_eq!(flag(&gitcd(&[]), "merge-conflict-resolutions"), Some("default=0:0"));
    let both = gitcd(&[
        ("gitcd/git/remotes/0/conflictResolution", json!(1)),
        ("gitcd/git/remotes/1/conflictResolution", json!(2)),
    ]);
    assert_eq!(flag(&both, "merge-conflict-resolutions"), Some("default=1:2"));
    assert_eq!(flag(&both, "merge-retention-policies-include"), None);
    let policies = json!({"include": "^/registry/(?:pods|nodes)/", "exclude": "a:b"});
    let spec = [("gitcd/git/remotes/0/retentionPolicies", policies)];
    let filtered = gitcd(&spec);
    assert_eq!(flag(&filtered, "merge-retention-policies-include"), Some("default=^/registry/(pods|nodes)/:.*"));
    assert_eq!(flag(&filtered, "merge-retention-policies-exclude"), Some("default=a\\:b:^$"));
    // With filters, the branch does not start from the whole remote branch.
    let begins = |pod: &Value| flag(container(pod, "git-pre"), "GITCD_BEGIN_WITH_REMOTE_BRANCH").map(ToOwned::to_owned);
    assert_eq!((begins(&with(&[])).as_deref(), begins(&with(&spec)).as_deref()), (Some("true"), Some("false")));
}

#[test]
fn pulls_and_pushes() {
    let gitcd = |fields: &[(&str, Value)]| container(&with(fields), "gitcd").clone();
    let usual = gitcd(&[]);
    assert_eq!(flag(&usual, "push-after-merges"), Some("default=true"));
    assert_eq!(flag(&usual, "push-on-pull-failures"), Some("default=false"));
    assert_eq!(flag(&usual, "pull-ticker-duration"), Some("10s"));
    let pull = json!({"pushAfterMerge": false, "pushOnPullFailure": true, "tickerDuration": "1m30s"});
    let said = gitcd(&[("gitcd/pull", pull)]);
    assert_eq!(flag(&said, "push-after-merges"), Some("default=false"));
    assert_eq!(flag(&said, "push-on-pull-failures"), Some("default=true"));
    assert_eq!(flag(&said, "pull-ticker-duration"), Some("1m30s"));
    let alone = gitcd(&[("gitcd/pull", Value::Null)]);
    assert_eq!((flag(&alone, "remote-names"), flag(&alone, "pull-ticker-duration")), (None, None));
    let lease = gitcd(&[("gitcd/pull", Value::Null), ("gitcd/writerLease", json!("15s"))]);
    assert_eq!(flag(&lease, "writer-lease"), Some("15s"));
    assert_eq!(
        (flag(&lease, "writer-lease-remote"), flag(&lease, "remote-names")),
        (Some("default=origin"), Some("default=origin:desk"))
    );
}

/// With a lease, kube-apiserver starts while another pod is the writer, and the user's containers with this one's turn.
#[test]
fn of_several_pods_one_acts() {
    let (alone, lease) = (with(&[]), with(&[("gitcd/writerLease", json!("15s"))]));
    let is_standby =
        |pod: &Value| container(pod, "gitcd")["args"].as_array().unwrap().contains(&json!("--hot-standby"));
    assert!(is_standby(&lease) && !is_standby(&alone));
    let asks =
        |pod: &Value| container(pod, "gitcd")["startupProbe"]["exec"]["command"].to_string().contains("--startup");
    assert!(asks(&lease) && !asks(&alone));
    let patience = |pod: &Value, name: &str| container(pod, name)["startupProbe"]["failureThreshold"].as_u64().unwrap();
    let server = |pod: &Value| (patience(pod, "gitcd"), patience(pod, "kube-apiserver"));
    assert_eq!(server(&alone), (600, 300));
    assert_eq!(server(&lease), (65535, 65535), "waiting for a turn has no limit");
    let path = |pod: &Value| container(pod, "kube-apiserver")["startupProbe"]["httpGet"]["path"].clone();
    assert_eq!((path(&lease), path(&alone)), (json!("/readyz"), json!("/readyz")));
}

#[test]
fn credentials_are_files_and_nothing_else() {
    let pod = with(&[]);
    assert_eq!(volume(&pod, "trishanku-credentials")["secret"]["secretName"], "git");
    let path = "/.trishanku/secrets/credentials";
    assert_eq!(flag(container(&pod, "git-pre"), "GITCD_CREDENTIALS_FOLDER"), Some(path));
    assert_eq!(flag(container(&pod, "gitcd"), "credentials-folder"), Some(path));
    for (name, mounted) in
        [("git-pre", true), ("gitcd-init", false), ("gitcd", true), ("kube-apiserver", false), ("app", false)]
    {
        assert_eq!(container(&pod, name)["volumeMounts"].to_string().contains(path), mounted, "{name}");
    }
    let pod = with(&[("gitcd/credentialsSecretName", Value::Null)]);
    assert!(!pod.to_string().contains("credentials"), "{pod}");
}

#[test]
fn credentials_over_plain_http_are_allowed_only_if_it_is_said() {
    for (given, flags) in [(Value::Null, None), (json!(false), None), (json!(true), Some("true"))] {
        let pod = with(&[("gitcd/allowPlainHttpCredentials", given)]);
        assert_eq!(flag(container(&pod, "git-pre"), "GITCD_ALLOW_PLAIN_HTTP_CREDENTIALS"), flags);
        assert_eq!(flag(container(&pod, "gitcd"), "allow-plain-http-credentials"), flags);
    }
    let spec = json!({
        "gitcd": {"allowPlainHttpCredentials": true, "git": {"remotes": [{"repo": "http://git.team.svc/x"}]}},
        "app": {"committerName": "automerge"},
    });
    assert_eq!(flag(container(&merge_pod(&spec), "gitcd"), "allow-plain-http-credentials"), Some("true"));
}

#[test]
fn storage() {
    assert_eq!(volume(&with(&[]), "trishanku-home")["emptyDir"], json!({}));
    let limited = with(&[("gitcd/storage", json!({"sizeLimit": "1Gi"}))]);
    assert_eq!(volume(&limited, "trishanku-home")["emptyDir"], json!({"sizeLimit": "1Gi"}));
    assert!(limited["spec"]["securityContext"].is_null());
    for (claim, name) in [(json!({"name": "mine"}), "mine"), (json!({"size": "1Gi"}), "a-repo")] {
        let kept = with(&[("gitcd/storage", json!({"volumeClaim": claim}))]);
        assert_eq!(volume(&kept, "trishanku-home")["persistentVolumeClaim"], json!({"claimName": name}));
        assert_eq!(kept["spec"]["securityContext"], json!({"fsGroup": 65532}));
    }
    let users = [
        ("gitcd/storage", json!({"volumeClaim": {"size": "1Gi"}})),
        ("app/podTemplate/spec/securityContext", json!({"fsGroup": 5})),
    ];
    assert_eq!(with(&users)["spec"]["securityContext"], json!({"fsGroup": 5}));
}

#[test]
fn events_are_kept_apart_only_if_it_is_said() {
    let pod = with(&[]);
    assert!(!pod.to_string().contains("events-etcd"));
    assert!(flag(container(&pod, "gitcd"), "ephemeral-prefixes").unwrap().contains("/registry/events"));
    let pod = with(&[("eventsEtcd", json!({"local": {}}))]);
    assert_eq!(
        flag(container(&pod, "kube-apiserver"), "etcd-servers-overrides"),
        Some("/events#https://127.0.0.1:2379")
    );
    assert_eq!(flag(container(&pod, "events-etcd"), "listen-client-urls"), Some("https://127.0.0.1:2379"));
}

#[test]
fn the_apiserver() {
    let pod = with(&[]);
    let apiserver = container(&pod, "kube-apiserver");
    let storage = ["watch-cache", "etcd-compaction-interval", "default-watch-cache-size", "feature-gates"];
    assert!(storage.iter().all(|name| flag(apiserver, name).is_none()), "no feature is disabled for gitcd");
    let pod = with(&[(
        "apiserver",
        json!({
            "extraArgs": {"v": "4", "authorization-mode": "RBAC", "feature-gates": "A=true"},
            "encryptionConfigurationSecretName": "keys",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
        }),
    )]);
    let apiserver = container(&pod, "kube-apiserver");
    assert_eq!((flag(apiserver, "v"), flag(apiserver, "authorization-mode")), (Some("4"), Some("RBAC")));
    assert_eq!(apiserver["args"].to_string().matches("authorization-mode").count(), 1);
    assert_eq!(flag(apiserver, "encryption-provider-config"), Some("/.trishanku/secrets/encryption/encryption.yaml"));
    assert_eq!(volume(&pod, "trishanku-encryption")["secret"]["secretName"], "keys");
    assert_eq!(apiserver["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}));
    let resources = json!({"limits": {"memory": "2Gi"}});
    let pod =
        with(&[("gitcd/resources", resources.clone()), ("eventsEtcd", json!({"local": {"resources": resources}}))]);
    for name in ["gitcd", "events-etcd"] {
        assert_eq!(container(&pod, name)["resources"], resources);
    }
}

#[test]
fn certificates() {
    let names = json!({
        "kubernetesSecretName": "k8s", "serviceAccountsSecretName": "sa", "certificateAuthoritySecretName": "ca",
        "controller": {"secretName": "c", "userName": "u"},
    });
    let pod = with(&[("certificates", names), ("app/kubeconfigMountPath", json!("/trishanku/kubeconfig"))]);
    assert_eq!(volume(&pod, "trishanku-kubernetes")["secret"]["secretName"], "k8s");
    assert_eq!(volume(&pod, "trishanku-service-accounts")["secret"]["secretName"], "sa");
    assert_eq!(
        volume(&pod, "trishanku-kubeconfig")["secret"],
        json!({"secretName": "c", "items": [{"key": "kubeconfig", "path": "kubeconfig"}]})
    );
    let mount = json!({"name": "trishanku-kubeconfig", "mountPath": "/trishanku/kubeconfig", "subPath": "kubeconfig", "readOnly": true});
    assert_eq!(container(&pod, "app")["volumeMounts"], json!([mount]));
    assert!(container(&pod, "app")["env"].is_null());
    assert!(!container(&pod, "gitcd").to_string().contains("kubeconfig"));
    let usual = with(&[]);
    assert_eq!(volume(&usual, "trishanku-kubernetes")["secret"]["secretName"], "a-cert-kubernetes");
    assert!(!usual.to_string().contains("kubeconfig"));
}

#[test]
fn the_git_host() {
    let pod = with(&[("gitcd/host", json!({"tokensSecretName": "tokens", "port": 8443}))]);
    let gitcd = container(&pod, "gitcd");
    assert_eq!(flag(gitcd, "host-listen-urls"), Some("http://0.0.0.0:8443"));
    assert_eq!(flag(gitcd, "host-tokens"), Some("/.trishanku/secrets/host-tokens/tokens.yaml"));
    assert_eq!(gitcd["ports"], json!([{"containerPort": 8443, "name": "git"}]));
    assert_eq!(volume(&pod, "trishanku-host-tokens")["secret"]["secretName"], "tokens");
    assert_eq!((flag(gitcd, "host-tls-cert"), flag(gitcd, "host-tls-key")), (None, None));
    let secure = with(&[("gitcd/host", json!({"tokensSecretName": "tokens", "tlsSecretName": "host-tls"}))]);
    let gitcd = container(&secure, "gitcd");
    assert_eq!(flag(gitcd, "host-listen-urls"), Some("https://0.0.0.0:2480"));
    let path = "/.trishanku/secrets/host-tls";
    assert_eq!(flag(gitcd, "host-tls-cert"), Some(&*format!("{path}/tls.crt")));
    assert_eq!(flag(gitcd, "host-tls-key"), Some(&*format!("{path}/tls.key")));
    // Users have tokens, and need no certificates.
    assert_eq!(flag(gitcd, "host-tls-trusted-ca-certs"), None);
    let files = ["tls.crt", "tls.key"].map(|file| json!({"key": file, "path": file}));
    let certificate = json!({"secretName": "host-tls", "items": files});
    assert_eq!(volume(&secure, "trishanku-host-tls")["secret"], certificate);
    // Probes ask the store, whatever the host has.
    assert_eq!(gitcd["startupProbe"], container(&pod, "gitcd")["startupProbe"]);
    assert_eq!(gitcd["livenessProbe"], container(&pod, "gitcd")["livenessProbe"]);
    for name in ["gitcd-init", "kube-apiserver", "app"] {
        assert!(!container(&secure, name).to_string().contains("host-tls"), "{name}");
    }
    // gitcd avoids the host's port.
    let ports = json!([{"containerPort": 2479}]);
    let pod = with(&[
        ("gitcd/host", json!({"tokensSecretName": "tokens"})),
        ("app/podTemplate/spec/containers/0/ports", ports),
    ]);
    let gitcd = container(&pod, "gitcd");
    assert_eq!(flag(gitcd, "host-listen-urls"), Some("http://0.0.0.0:2480"));
    assert_eq!(flag(gitcd, "listen-urls"), Some("default=https://127.0.0.1:2481"));
}

#[test]
fn invalid_values_are_reported_with_their_field() {
    for (path, value, words) in [
        ("gitcd/git/branches", json!({"data": "a,b"}), &["gitcd.git.branches.data", "a,b", "','"][..]),
        ("gitcd/git/branches", json!({"metadata": "main"}), &["gitcd.git.branches.metadata", "one of its own"]),
        ("gitcd/git/remotes/1/name", json!("origin"), &["gitcd.git.remotes[1].name", "twice"]),
        (
            "gitcd/git/remotes/0/repo",
            json!("https://ann:secret@h/x.git"),
            &["remotes[0].repo", "credentialsSecretName"],
        ),
        (
            "gitcd/git/remotes/0/retentionPolicies",
            json!({"include": "a{1,2}"}),
            &["retentionPolicies.include", "write it out"],
        ),
        ("gitcd/host", json!({"tokensSecretName": "t", "port": 70000}), &["gitcd.host.port", "65535"]),
        (
            "gitcd/host",
            json!({"tokensSecretName": "t", "tlsSecretName": "a-cert-kubernetes"}),
            &["gitcd.host.tlsSecretName", "a-cert-kubernetes", "host's own names"],
        ),
        (
            "gitcd/host",
            json!({"tokensSecretName": "t", "tlsSecretName": ""}),
            &["gitcd.host.tlsSecretName", "leave it out"],
        ),
    ] {
        let said = try_heaven(&changed(&[(path, value)]), &MADE).unwrap_err();
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains("secret@"), "{said}");
    }
}

#[test]
fn a_merge_pulls_and_has_no_clients() {
    let spec = json!({
        "gitcd": {"git": {"branches": {"data": "up"}, "remotes": [{"name": "kcm", "repo": "/x", "branches": {"data": "kcm"}}]}},
        "app": {"committerName": "automerge"},
    });
    let pod = merge_pod(&spec);
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
    let gitcd = container(&pod, "gitcd");
    assert_eq!((&gitcd["args"][0], flag(gitcd, "committer-name")), (&json!("pull"), Some("automerge")));
    assert_eq!((flag(gitcd, "pull-ticker-duration"), flag(gitcd, "listen-urls")), (Some("10s"), None));
    assert_eq!(flag(gitcd, "remote-data-reference-names"), Some("default=refs/heads/kcm"));
    assert_eq!(flag(container(&pod, "gitcd-init"), "committer-name"), Some("automerge"));
    let mut kept = spec.clone();
    kept["gitcd"]["storage"] = json!({"volumeClaim": {"size": "1Gi"}});
    let home = volume(&merge_pod(&kept), "trishanku-home")["persistentVolumeClaim"].clone();
    assert_eq!(home, json!({"claimName": "a-automerge-repo"}));
}
