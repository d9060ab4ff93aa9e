//! A pod with the fields that a heaven does not use.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PodTemplateSpec, SecurityContext};
use serde_json::{Value, json};
use trishanku_framework::inject::{
    ConfigMapRef, Csi, EmptyDir, EnvFrom, EphemeralClaim, FieldRef, FsGroupChangePolicy, HostPath, HostPathType,
    HttpGet, InjectError, Injector, LifecycleHook, Pod, PodSecurity, Probe, ResourceFieldRef, SecretRef, inject_json,
};

use crate::heaven::template;

pub(crate) fn inject(template: &PodTemplateSpec) -> Result<PodTemplateSpec, InjectError> {
    Injector::new(template.clone()).with(build).finish()
}

fn build(pod: &mut Pod<'_>) {
    pod.label("trishanku.io/injected", "true");
    pod.annotation("trishanku.io/note", "Everything, at once!");
    let group = PodSecurity::new().fs_group(65532).fs_group_change_policy(FsGroupChangePolicy::OnRootMismatch);
    pod.security(group.supplemental_group(7).sysctl("net.ipv4.ip_unprivileged_port_start", "0"));
    resolver(pod);
    mounter(pod);
    shell(pod);
}

/// Ports, hooks, probes, variables and resources.
fn resolver(pod: &mut Pod<'_>) {
    let logs = pod.volume("logs", EphemeralClaim::new("1024Mi").storage_class("fast").label("of", "resolver"));
    let mut resolver = pod.sidecar("resolver", "resolver:1");
    let (queries, transfers) = (resolver.udp_port("dns", 53), resolver.port("dns-tcp", 53));
    let (status, _streams) = (resolver.port_near("status", 8080), resolver.sctp_port("streams", 53));
    let ready = HttpGet::path("/ready").header("Host", "resolver").header("X-Token", "t");
    resolver
        .host_port(&queries, 53)
        .host_port(&transfers, 5353)
        .env("CPUS", ResourceFieldRef::limit("cpu"))
        .env("MEMORY", ResourceFieldRef::request("memory").divisor("1024Ki"))
        .env("POD", FieldRef::new("metadata.name"))
        .env("TOKEN", SecretRef::named("resolver").key("token").optional())
        .env("ZONE", ConfigMapRef::named("resolver").key("zone").optional())
        .env_from(EnvFrom::from(&SecretRef::named("resolver")).prefix("SECRET_").optional())
        .env_from(ConfigMapRef::named("resolver"))
        .mount_writable(&logs.sub_path("pods").sub_path_expr("$(POD)"), "/logs")
        .request("cpu", "0.5")
        .limit("cpu", "1000m")
        .limit("memory", "64Mi")
        .limit("hugepages-2Mi", "4Mi")
        .startup(Probe::tcp(&transfers).initial_delay(Duration::from_secs(2)))
        .readiness(Probe::http(&status, ready).successes(2).every(Duration::from_secs(3)))
        .liveness(Probe::grpc_service(&status, "live").termination_grace_period(Duration::from_secs(5)))
        .post_start(LifecycleHook::exec(["resolver", "--warm-up"]))
        .pre_stop(LifecycleHook::sleep(Duration::from_secs(20)))
        .add();
}

/// Volumes and mounts.
fn mounter(pod: &mut Pod<'_>) {
    let device = pod.volume("device", HostPath::dangerous("/dev/fuse").of_type(HostPathType::CharDevice));
    let kubelet = pod.volume("kubelet", HostPath::dangerous("/var/lib/kubelet").writable());
    let secrets = Csi::driver("secrets-store.csi.k8s.io").attribute("secretProviderClass", "vault");
    let secrets = pod.volume("secrets", secrets.node_publish_secret(&SecretRef::named("vault")).read_only());
    let scratch = pod.volume("scratch", Csi::driver("scratch.csi.example.com").fs_type("ext4"));
    let shared = pod.volume("shared", EmptyDir::new());
    let mut mounter = pod.container("mounter", "mounter:1");
    let status = mounter.port_near("mounter-status", 8080);
    mounter
        .security(SecurityContext { run_as_user: Some(0), ..SecurityContext::default() })
        .mount(&device, "/dev/fuse")
        .mount(&kubelet.host_to_container(), "/var/lib/kubelet")
        .mount(&secrets.recursive_read_only(), "/secrets")
        .mount_writable(&scratch, "/scratch")
        .mount_writable(&shared.host_to_container(), "/shared")
        .post_start(LifecycleHook::http(&status, "/mount"))
        .pre_stop(LifecycleHook::https(&status, HttpGet::path("/unmount").header("X-Now", "1")))
        .add();
}

/// Fields that the builder does not know.
fn shell(pod: &mut Pod<'_>) {
    let raw = pod.container("shell", "shell:1").raw(|container| {
        container.tty = Some(true);
        container.stdin_once = Some(false);
        container.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
        let resolve = json!([{"name": "web", "containerPort": 9090, "hostIP": "127.0.0.1"}]);
        container.ports = serde_json::from_value(resolve).unwrap();
    });
    raw.add();
}

/// A user's template with some of it.
fn users() -> Value {
    json!({
        "metadata": {"labels": {"app": "heaven", "trishanku.io/injected": "true"}, "ofTomorrow": 1},
        "spec": {
            "securityContext": {"supplementalGroups": [5], "fsGroup": 65532, "ofTomorrow": [1]},
            "containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}]}],
        },
    })
}

#[test]
fn a_pod_with_everything() {
    let injected = inject(&template(users())).unwrap();
    insta::assert_yaml_snapshot!(injected);
    assert_eq!(inject(&injected).unwrap(), injected);
}

#[test]
fn unknown_fields_stay_beside_fields_of_the_pod() {
    let inject = |injector: Injector| injector.with(build);
    let injected = inject_json(&users(), inject).unwrap();
    assert_eq!(injected["metadata"]["ofTomorrow"], 1);
    assert_eq!(injected["metadata"]["labels"], users()["metadata"]["labels"]);
    assert_eq!(injected["metadata"]["annotations"], json!({"trishanku.io/note": "Everything, at once!"}));
    let context = &injected["spec"]["securityContext"];
    assert_eq!(context["ofTomorrow"], json!([1]));
    assert_eq!(context["supplementalGroups"], json!([5, 7]));
    assert_eq!(inject_json(&injected, inject).unwrap(), injected);
}

#[test]
fn nothing_is_added_to_the_pod_that_was_not_asked_for() {
    let users = template(json!({"spec": {"containers": [{"name": "app", "image": "app:1"}]}}));
    let injected = Injector::new(users.clone()).with(|pod| pod.security(PodSecurity::new())).finish().unwrap();
    assert_eq!(injected, users);
}
