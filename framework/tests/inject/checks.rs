//! What an API server would reject is reported, and nothing is overwritten or lost silently.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, SecurityContext};
use serde_json::json;
use trishanku_framework::inject::{
    Csi, EmptyDir, EnvFrom, EphemeralClaim, FieldRef, HostPath, HttpGet, Injector, LifecycleHook, Pod, PodSecurity,
    Probe, ProblemKind, PullPolicy, ResourceFieldRef, SecretRef, Security,
};

use crate::collisions::messages;
use crate::heaven::template;

/// Returns the problems of an injection into a pod with volume `theirs`.
pub(crate) fn problems(build: impl for<'p> FnOnce(&mut Pod<'p>)) -> Vec<String> {
    let users = template(json!({"spec": {
        "containers": [{"name": "app", "image": "app:1"}], "volumes": [{"name": "theirs", "emptyDir": {}}],
    }}));
    match Injector::new(users).with(build).finish() {
        Ok(_) => Vec::new(),
        Err(error) => {
            assert!(error.problems().iter().all(|problem| problem.kind == ProblemKind::Invalid), "{error}");
            messages(&error)
        }
    }
}

#[test]
fn a_container_that_is_not_added_is_reported() {
    let found = problems(|pod| {
        let mut lost = pod.sidecar("lost", "lost:1");
        lost.port("web", 80);
        drop(lost);
        drop(pod.container("also", "also:1").command(["x"]));
        drop(pod.sidecar("started", "s:1").startup(Probe::exec(["true"])));
    });
    let expected = ["spec.initContainers[lost]", "spec.containers[also]", "spec.initContainers[started]"]
        .map(|path| format!("{path}: was begun, but not added; call `add`, or do not begin it"));
    assert_eq!(found, expected);
}

#[test]
fn what_is_set_twice_is_reported() {
    let found = problems(|pod| {
        let data = pod.volume("data", EmptyDir::new());
        let mut twice = pod.container("twice", "twice:1");
        let port = twice.port("web", 80);
        twice
            .pull_policy(PullPolicy::Always)
            .pull_policy(PullPolicy::Always)
            .command(["a"])
            .command(["b"])
            .working_dir("/a")
            .working_dir("/b")
            .env("A", "1")
            .env("A", "1")
            .mount(&data, "/data")
            .mount_writable(&data, "/data/")
            .security(Security::restricted())
            .security(Security::restricted().user(1, 1))
            .request("cpu", "1")
            .request("cpu", "1")
            .limit("cpu", "1")
            .limit("cpu", "2")
            .host_port(&port, 80)
            .host_port(&port, 81)
            .startup(Probe::tcp(&port))
            .startup(Probe::exec(["true"]))
            .readiness(Probe::tcp(&port))
            .readiness(Probe::exec(["true"]))
            .liveness(Probe::tcp(&port))
            .liveness(Probe::exec(["true"]))
            .post_start(LifecycleHook::exec(["true"]))
            .post_start(LifecycleHook::exec(["true"]))
            .pre_stop(LifecycleHook::sleep(Duration::from_secs(1)))
            .pre_stop(LifecycleHook::exec(["true"]))
            .add();
        pod.label("a", "1");
        pod.label("a", "2");
        pod.annotation("a", "1");
        pod.annotation("a", "1");
        pod.security(PodSecurity::new().fs_group(1).sysctl("net.a", "1"));
        pod.security(PodSecurity::new().fs_group(2).supplemental_group(3).sysctl("net.a", "2"));
    });
    let fields = [
        "imagePullPolicy",
        "command",
        "workingDir",
        "securityContext",
        "resources.requests[cpu]",
        "resources.limits[cpu]",
        "ports[80].hostPort",
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
        "lifecycle.postStart",
        "lifecycle.preStop",
    ];
    let mut expected: Vec<_> =
        fields.iter().map(|field| format!("spec.containers[twice].{field}: is set twice; set it once")).collect();
    expected.extend(
        [
            "metadata.labels[a]: is set twice, to different values; set it once",
            "spec.securityContext.fsGroup: is 1, not 2; set it once",
            "spec.securityContext.sysctls[net.a]: is \"1\", not \"2\"; set it once",
            "spec.containers[twice].env[A]: is added twice; add it once",
            "spec.containers[twice].volumeMounts[/data/]: is mounted twice; mount one volume there",
        ]
        .map(str::to_owned),
    );
    assert_eq!(found, expected);
}

#[test]
fn quantities_make_sense() {
    let container = |requests: Vec<(&'static str, &'static str)>, limits: Vec<(&'static str, &'static str)>| {
        problems(move |pod| {
            let mut container = pod.container("c", "c:1");
            container = requests.into_iter().fold(container, |container, (of, amount)| container.request(of, amount));
            limits.into_iter().fold(container, |container, (of, amount)| container.limit(of, amount)).add();
        })
    };
    assert_eq!(
        container(vec![("cpu", "1000m"), ("memory", "0")], vec![("cpu", "1"), ("example.com/gpu", "2")]),
        [""; 0]
    );
    assert_eq!(container(vec![("hugepages-2Mi", "4Mi"), ("cpu", "1")], vec![("hugepages-2Mi", "4096Ki")]), [""; 0]);
    for (requests, limits, expected) in [
        (
            vec![("cpu", "2")],
            vec![("cpu", "1500m")],
            "requests[cpu]: is \"2\", above the limit \"1500m\"; lower it, or raise the limit",
        ),
        (
            vec![("cpu", "much")],
            vec![("cpu", "1")],
            "requests[cpu]: is \"much\", which is not a quantity; use a number with a suffix like m, k, M, Ki, Mi, Gi",
        ),
        (vec![], vec![("memory", "-1Gi")], "limits[memory]: is \"-1Gi\"; use zero or more"),
        (
            vec![("ram", "1")],
            vec![],
            "requests[ram]: has an unknown resource; use cpu, memory, ephemeral-storage, hugepages-<size>, or a name with a domain",
        ),
        (
            vec![("cpu", "1"), ("hugepages-2Mi", "2Mi")],
            vec![("hugepages-2Mi", "4Mi")],
            "requests[hugepages-2Mi]: is \"2Mi\", but the limit is \"4Mi\"; set both to the same quantity",
        ),
        (
            vec![("cpu", "1")],
            vec![("hugepages-2Mi", "3Mi")],
            "limits[hugepages-2Mi]: is \"3Mi\"; use a multiple of the smallest unit: 1m, a device, a page",
        ),
        (
            vec![("cpu", "100u")],
            vec![],
            "requests[cpu]: is \"100u\"; use a multiple of the smallest unit: 1m, a device, a page",
        ),
        (vec![("example.com/gpu", "1")], vec![], "requests[example.com/gpu]: has no limit; set the limit instead"),
        (
            vec![],
            vec![("example.com/gpu", "500m")],
            "limits[example.com/gpu]: is \"500m\"; use a multiple of the smallest unit: 1m, a device, a page",
        ),
    ] {
        assert_eq!(container(requests, limits), [format!("spec.containers[c].resources.{expected}")]);
    }
    let expected = "spec.containers[c].resources: has huge pages without CPU or memory; request cpu or memory, too";
    assert_eq!(container(vec![], vec![("hugepages-1Gi", "1Gi")]), [expected]);
}

#[test]
fn sources_of_volumes_and_variables_are_checked() {
    let found = problems(|pod| {
        pod.volume("dir", EmptyDir::new().size_limit("big"));
        pod.volume("none", EphemeralClaim::new("0"));
        pod.volume("empty", EphemeralClaim::from(PersistentVolumeClaimSpec::default()));
        pod.volume("node", HostPath::dangerous("/var/../etc"));
        pod.volume("csi", Csi::driver("not a driver"));
        pod.container("c", "c:1")
            .env("A", ResourceFieldRef::limit("disk"))
            .env("B", ResourceFieldRef::limit("cpu").divisor("1Mi"))
            .env("C", ResourceFieldRef::request("memory").divisor("1024Mi"))
            .env("D", ResourceFieldRef::request("memory").divisor("1024"))
            .env("E", ResourceFieldRef::limit("memory").divisor("1e3"))
            .env("F", ResourceFieldRef::limit("memory").divisor("1E"))
            .env_from(EnvFrom::from(&SecretRef::named("s")).prefix("A="))
            .add();
    });
    let expected = [
        "spec.volumes[dir].emptyDir.sizeLimit: is \"big\", which is not a quantity; use a number with a suffix like m, k, M, Ki, Mi, Gi",
        "spec.volumes[none].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: is 0; request a size",
        "spec.volumes[empty].ephemeral.volumeClaimTemplate.spec.accessModes: is empty; name an access mode",
        "spec.volumes[empty].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: is missing; request a size",
        "spec.volumes[node].hostPath.path: is \"/var/../etc\"; use an absolute path without '..'",
        "spec.volumes[csi].csi.driver: is \"not a driver\"; use the name of the CSIDriver",
        "spec.containers[c].env[A].valueFrom.resourceFieldRef.resource: is \"limits.disk\"; reference cpu, memory, ephemeral-storage or hugepages-<size>",
        "spec.containers[c].env[B].valueFrom.resourceFieldRef.divisor: is \"1Mi\"; use one of 1m, 1",
        "spec.containers[c].env[D].valueFrom.resourceFieldRef.divisor: is \"1024\"; use one of 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei",
        "spec.containers[c].env[E].valueFrom.resourceFieldRef.divisor: is \"1e3\"; use one of 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei",
        "spec.containers[c].envFrom[A=]: has an invalid prefix; use a prefix without '='",
    ];
    assert_eq!(found, expected);
}

#[test]
fn mounts_can_be_made() {
    let found = problems(|pod| {
        let secret = pod.volume("secret", SecretRef::named("s").files());
        let data = pod.volume("data", EmptyDir::new());
        pod.container("c", "c:1")
            .env("HERE", "here")
            .mount(&secret, "/etc/secret")
            .mount(&data, "/etc/secret/data/")
            .mount(&data, "/etc/secretive")
            .mount_writable(&data, "/data")
            .mount_writable(&data.sub_path("a"), "/data/a")
            .mount(&data.sub_path("$(a)").sub_path_expr("$(HERE)/$$(GONE)").sub_path("b"), "/known")
            .mount(&data.sub_path_expr("$(HERE)/$(GONE)"), "/unknown")
            .mount(&data.sub_path_expr("../$(HERE)"), "/up")
            .mount(&data.host_to_container().recursive_read_only(), "/both")
            .mount_writable(&data.bidirectional(), "/shown")
            .add();
        // The Secret may have the variable.
        pod.container("d", "d:1")
            .env_from(SecretRef::named("s"))
            .mount(&data.sub_path_expr("$(GONE)"), "/unknown")
            .security(SecurityContext { privileged: Some(true), ..SecurityContext::default() })
            .mount_writable(&data.bidirectional(), "/shown")
            .add();
    });
    let expected = [
        "volumeMounts[/unknown].subPathExpr: uses variable \"GONE\", which the container does not have; add the variable",
        "volumeMounts[/up].subPathExpr: is \"../$(HERE)\"; use a relative path without '..'",
        "volumeMounts[/both].recursiveReadOnly: requires a read-only mount without mount propagation; remove one of them",
        "volumeMounts[/shown].mountPropagation: is Bidirectional in a container that is not privileged; give the container a privileged security context",
        "volumeMounts[/etc/secret/data/]: is inside the read-only files at /etc/secret, where it cannot be created; mount it elsewhere",
    ];
    assert_eq!(found, expected.map(|problem| format!("spec.containers[c].{problem}")));
}

#[test]
fn a_sub_path_of_a_sub_path_is_inside_it() {
    let users = template(json!({"spec": {"containers": []}}));
    let injector = Injector::new(users).with(|pod| {
        let data = pod.volume("data", EmptyDir::new());
        let folder = data.sub_path("a/");
        pod.container("c", "c:1")
            .env("X", FieldRef::new("metadata.name"))
            .mount(&folder.sub_path("b"), "/1")
            .mount(&data.sub_path("$(X)").sub_path_expr("$(X)").sub_path("$(X)").sub_path_expr("c"), "/2")
            .add();
    });
    let spec = injector.finish().unwrap().spec.unwrap();
    let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
    assert_eq!((mounts[0].sub_path.as_deref(), mounts[0].sub_path_expr.as_deref()), (Some("a/b"), None));
    assert_eq!((mounts[1].sub_path.as_deref(), mounts[1].sub_path_expr.as_deref()), (None, Some("$$(X)/$(X)/$$(X)/c")));
}

#[test]
fn metadata_and_headers_have_valid_names() {
    let found = problems(|pod| {
        pod.label("App/a", "1");
        pod.label("a", "not a value");
        pod.annotation("Any.Domain/A", "any value");
        pod.annotation("", "x");
        pod.security(PodSecurity::new().fs_group(u32::MAX).sysctl("Net", "1"));
        let mut c = pod.container("c", "c:1");
        let port = c.port("web", 80);
        let probe = Probe::http(&port, HttpGet::path("/").header("a b", ""));
        c.readiness(probe).security(Security::restricted().user(u32::MAX, 1)).add();
    });
    let key =
        "use a name like team or example.com/team, with at most 63 letters, digits, '-', '_' and '.' after the domain";
    let expected = [
        format!("metadata.labels[App/a]: has an invalid key; {key}"),
        "metadata.labels[a]: has an invalid value; use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends".to_owned(),
        format!("metadata.annotations[]: has an invalid key; {key}"),
        "spec.securityContext.fsGroup: is 4294967295; use a number up to 2147483647".to_owned(),
        "spec.securityContext.sysctls[Net]: has an invalid name; use a name like net.ipv4.ip_unprivileged_port_start".to_owned(),
        "spec.containers[c].readinessProbe.httpGet.httpHeaders[a b]: has an invalid name; use letters, digits and '-'".to_owned(),
        "spec.containers[c].securityContext.runAsUser: is 4294967295; use a number up to 2147483647".to_owned(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_port_of_the_node_is_forwarded_once() {
    let found = problems(|pod| {
        let mut one = pod.container("one", "one:1");
        let (web, other, udp) = (one.port("web", 80), one.port("other", 81), one.udp_port("udp", 80));
        one.host_port(&web, 9000).host_port(&other, 9000).host_port(&udp, 9000).add();
        let mut two = pod.sidecar("two", "two:1");
        let (web, udp) = (two.port("status", 82), two.udp_port("more", 83));
        two.host_port(&web, 9000).host_port(&udp, 0).add();
    });
    let expected = [
        "spec.initContainers[two].ports[more]: has an invalid number; give it another number",
        "spec.containers[one].ports[other].hostPort: is 9000, as that of another port; give each its own",
        "spec.containers[one].ports[80]: has host port 9000, as a port of \"two\"; give each its own",
        "spec.containers[one].ports[81]: has host port 9000, as a port of \"two\"; give each its own",
    ];
    assert_eq!(found, expected);
}
