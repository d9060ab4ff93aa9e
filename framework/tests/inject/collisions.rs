//! All collisions are reported, and nothing is overwritten.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};
use trishanku_framework::inject::{
    EmptyDir, InjectError, Injector, Pod, Probe, ProblemKind, SecretRef, Security, Users,
};
use trishanku_framework::{Failure, Retry};

use crate::heaven::{Heaven, controller_manager, template};

pub(crate) fn messages(error: &InjectError) -> Vec<String> {
    error.problems().iter().map(ToString::to_string).collect()
}

pub(crate) fn app(fields: &Value) -> PodTemplateSpec {
    let mut app = json!({"name": "app", "image": "app:1"});
    app.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    template(json!({"spec": {"containers": [app]}}))
}

#[test]
fn all_collisions_are_reported_together_with_field_and_remedy() {
    let users = template(json!({"spec": {
        "securityContext": {"runAsUser": 0},
        "initContainers": [{"name": "gitcd", "image": "mine:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "app", "image": "app:1", "env": [{"name": "KUBECONFIG", "value": "/etc/mine"}],
                "ports": [{"containerPort": 6443}, {"name": "gitcd-client", "containerPort": 1}],
                "volumeMounts": [{"name": "repo", "mountPath": "/var/run/heaven/"}],
            },
            {"name": "git-pre", "image": "x"},
        ],
        "volumes": [{"name": "repo", "secret": {"secretName": "mine"}}],
    }}));
    let error = Heaven::default().inject(&users).unwrap_err();
    assert_eq!(
        messages(&error),
        [
            "spec.containers[git-pre]: has the name of an injected container; give it another name",
            "spec.securityContext.runAsUser: is 0, and these injected containers must not run as root: git-pre, gitcd-init, gitcd; set the user of the \
             containers that need it instead",
            "spec.containers[app].ports[1].name: has the name \"gitcd-client\" of a port of injected container \"gitcd\"; rename it, because a Service that selects it \
             by name gets the first",
            "spec.containers[app].ports[6443]: is the port that injected container \"kube-apiserver\" listens on; use another port",
            "spec.volumes[repo]: exists, and differs from the injected one: emptyDir is missing, secret differs; rename or \
             remove it",
            "spec.initContainers[gitcd]: exists, and differs from the injected one: args is missing, image is \"mine:1\", ports is missing, and 4 \
             more; rename or remove it",
            "spec.containers[app].volumeMounts[/var/run/heaven/]: is volume \"repo\", where the kubeconfig would be; mount it elsewhere, or request \
             the kubeconfig elsewhere",
            "spec.containers[app].env[KUBECONFIG]: is \"/etc/mine\"; remove it, or do not request a kubeconfig in this container",
        ]
    );
    assert!(error.problems().iter().all(|problem| problem.kind == ProblemKind::Collision));
    assert_eq!((error.reason(), error.retry()), ("PodTemplateCollision", Retry::Terminal));
    assert!(
        error.to_string().starts_with("cannot inject into the pod template: spec.containers[git-pre]: has the name")
    );
}

#[test]
fn a_private_volume_is_not_mounted_by_the_users_containers() {
    let mounts = json!({"volumeMounts": [
        {"name": "keys", "mountPath": "/keys"}, {"name": "shared", "mountPath": "/shared"},
    ]});
    let inject = |users: &PodTemplateSpec| {
        let injector = Injector::new(users.clone()).with(|pod| {
            let keys = pod.volume("keys", EmptyDir::new().in_memory());
            let shared = pod.volume("shared", EmptyDir::new());
            pod.keep_private(&keys);
            let maker = pod.init("maker", "maker:1").security(Security::restricted().user(1, 1));
            maker.mount_writable(&keys, "/keys").mount_writable(&shared, "/shared").add();
        });
        injector.finish()
    };
    let error = inject(&app(&mounts)).unwrap_err();
    let expected = "spec.containers[app].volumeMounts[/keys]: is volume \"keys\", which only injected containers may mount; remove it";
    assert_eq!(messages(&error), [expected]);
    // Also if the template has such a volume itself.
    let mut theirs = app(&mounts);
    theirs.spec.as_mut().unwrap().volumes =
        Some(serde_json::from_value(json!([{"name": "keys", "emptyDir": {"medium": "Memory"}}])).unwrap());
    assert_eq!(messages(&inject(&theirs).unwrap_err()), [expected]);
    // What was injected stays valid, but cannot be added to.
    let once = inject(&app(&json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}))).unwrap();
    assert_eq!(inject(&once).unwrap(), once);
    let mut more = serde_json::to_value(&once).unwrap();
    let maker = &mut more["spec"]["initContainers"][0];
    maker["env"] = json!([{"name": "PATH", "value": "/shared"}]);
    maker["volumeMounts"].as_array_mut().unwrap().push(json!({"name": "shared", "mountPath": "/keys/"}));
    assert_eq!(
        messages(&inject(&template(more)).unwrap_err()),
        [
            "spec.initContainers[maker].env[PATH]: is not in the injected container; remove it",
            "spec.initContainers[maker].volumeMounts[/keys/]: is not in the injected container; remove it",
        ]
    );
}

#[test]
fn values_that_may_be_secrets_are_not_printed() {
    let users = template(json!({"spec": {
        "initContainers": [{
            "name": "git-pre", "image": "ghcr.io/trishanku-org/gitcd:1", "args": ["--token=hush"], "command": ["hush"],
            "env": [{"name": "GIT_USERNAME", "value": "hush"}],
        }],
        "containers": [{"name": "app", "image": "app:1"}],
    }}));
    let error = Heaven::default().inject(&users).unwrap_err();
    assert!(
        error.to_string().contains("spec.initContainers[git-pre]") && !format!("{error} {error:?}").contains("hush")
    );
}

#[test]
fn a_kubeconfig_that_the_user_has_already_is_left_to_the_user_if_it_is_the_same() {
    let same = app(&json!({
        "env": [{"name": "KUBECONFIG", "value": "/var/run/heaven/kubeconfig"}, {"name": "LAST", "value": "$(KUBECONFIG)"}],
        "volumeMounts": [{"name": "kubeconfig", "mountPath": "/var/run/heaven", "readOnly": true}],
    }));
    let injected = Heaven::default().inject(&same).unwrap().spec.unwrap();
    assert_eq!(injected.containers, same.spec.unwrap().containers);

    let elsewhere =
        app(&json!({"env": [{"name": "KUBECONFIG", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}));
    let expected = "spec.containers[app].env[KUBECONFIG]: has a value from another source; remove it, or do not request a kubeconfig in this container";
    assert_eq!(messages(&Heaven::default().inject(&elsewhere).unwrap_err()), [expected]);
    let without = Heaven { kubeconfig: None, ..Heaven::default() };
    assert_eq!(without.inject(&elsewhere).unwrap().spec.unwrap().containers, elsewhere.spec.unwrap().containers);
}

#[test]
fn a_kubeconfig_goes_to_those_that_are_named() {
    let named = |name: &str| Heaven { kubeconfig: Some(Users::named([name])), ..Heaven::default() };
    let injected = named("kcm").inject(&controller_manager()).unwrap().spec.unwrap();
    let has = |container: &k8s_openapi::api::core::v1::Container| {
        container.env.iter().flatten().any(|variable| variable.name == "KUBECONFIG")
    };
    let with: Vec<_> =
        injected.init_containers.iter().flatten().chain(&injected.containers).filter(|c| has(c)).collect();
    assert_eq!(with.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["kcm"]);
    let expected =
        "spec.containers[gitcd]: does not exist, and should get a kubeconfig; containers: wait, kcm; name one of these";
    assert_eq!(messages(&named("gitcd").inject(&controller_manager()).unwrap_err()), [expected]);
}

#[test]
fn what_a_runtime_could_not_mount_is_a_collision() {
    let inside = app(&json!({"volumeMounts": [{"name": "mine", "mountPath": "/var/run/heaven/cache"}]}));
    let expected = "spec.containers[app].volumeMounts[/var/run/heaven/cache]: is inside /var/run/heaven, where the read-only folder of the \
                    kubeconfig would be; request the kubeconfig in another folder, or as a file";
    assert_eq!(messages(&Heaven::default().inject(&inside).unwrap_err()), [expected]);

    let mut around = app(&json!({"volumeMounts": [{"name": "mine", "mountPath": "/var/run"}]}));
    assert!(Heaven::default().inject(&around).is_ok());
    around.spec.as_mut().unwrap().volumes =
        serde_json::from_value(json!([{"name": "mine", "configMap": {"name": "x"}}])).unwrap();
    let expected = "spec.containers[app].volumeMounts[/var/run]: is read-only, and contains /var/run/heaven, where the kubeconfig would be; request \
                    the kubeconfig in another folder";
    assert_eq!(messages(&Heaven::default().inject(&around).unwrap_err()), [expected]);
    // Beside the folder, not inside it.
    let beside = app(&json!({"volumeMounts": [{"name": "mine", "mountPath": "/var/run/heaven2"}]}));
    assert!(Heaven::default().inject(&beside).is_ok());
}

#[test]
fn an_older_injection_is_a_collision() {
    let injected = Heaven::default().inject(&controller_manager()).unwrap();
    let newer = Heaven { apiserver: "kube-apiserver:newer".to_owned(), ..Heaven::default() };
    let expected = "spec.initContainers[kube-apiserver].image: is \"registry.k8s.io/kube-apiserver:v1.36.3\", unlike in the injected one; rename \
                    or remove the container";
    assert_eq!(messages(&newer.inject(&injected).unwrap_err()), [expected]);
}

#[test]
fn who_waits_stays_behind_those_that_it_waits_for() {
    let mut swapped = Heaven::default().inject(&controller_manager()).unwrap();
    let containers = swapped.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    containers.swap(2, 3);
    let expected = "spec.initContainers[kube-apiserver]: comes before \"gitcd\", which it has to wait for; move it behind that, or remove both";
    assert_eq!(messages(&Heaven::default().inject(&swapped).unwrap_err()), [expected]);
    // A missing container is inserted where it has to be, and the existing ones stay where they are.
    let containers = swapped.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    containers.swap(2, 3);
    containers.remove(1);
    containers.rotate_right(1);
    let mended = Heaven::default().inject(&swapped).unwrap().spec.unwrap().init_containers.unwrap();
    let names: Vec<_> = mended.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["wait", "git-pre", "gitcd-init", "gitcd", "kube-apiserver"]);
}

#[test]
fn ports_are_free_in_the_whole_pod() {
    fn inject(users: PodTemplateSpec) -> (Vec<u16>, PodTemplateSpec) {
        let mut numbers = Vec::new();
        let injector = Injector::new(users).with(|pod: &mut Pod<'_>| {
            let mut fixed = pod.sidecar("fixed", "fixed:1");
            fixed.port("fixed", 8002);
            numbers.push(fixed.port_near("beside", 8002).number());
            fixed.add();
            let mut free = pod.container("free", "free:1");
            numbers.extend([free.port_near("one", 8000).number(), free.port_near("other", 8000).number()]);
            free.add();
            let mut etcd = pod.container("etcd", "etcd:1");
            numbers.push(etcd.port_near("etcd", 2379).number());
            etcd.add();
        });
        let injected = injector.finish().unwrap();
        (numbers, injected)
    }
    fn numbers(users: Value) -> Vec<u16> {
        let (numbers, injected) = inject(template(users));
        // Its own ports do not count.
        assert_eq!(inject(injected.clone()), (numbers.clone(), injected));
        numbers
    }
    let users = |fields: Value| {
        let mut spec = json!({"containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 8000}]}]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    assert_eq!(numbers(users(json!({}))), [8003, 8001, 8004, 2379]);
    assert_eq!(numbers(users(json!({"hostNetwork": true}))), [8003, 8001, 8004, 2382]);
    let sidecar =
        json!({"name": "s", "livenessProbe": {"httpGet": {"port": 8001}}, "startupProbe": {"grpc": {"port": 8004}}});
    assert_eq!(numbers(users(json!({"initContainers": [sidecar]}))), [8003, 8005, 8006, 2379]);
}

#[test]
fn invalid_additions_are_reported_too() {
    let injector = Injector::new(controller_manager()).with(|pod| {
        let dir = pod.volume("Dir", EmptyDir::new());
        pod.volume("Dir", EmptyDir::new());
        let mut twice = pod.sidecar("twice", "");
        twice.port("Not-A-Name", 0);
        twice.port_near("near", u16::MAX);
        twice.port_near("nearer", u16::MAX);
        twice
            .env("A=B", "")
            .env("A", "1")
            .env("A", "2")
            .mount(&dir.sub_path("../up"), "relative")
            .mount(&dir, "relative/")
            .security(Security::restricted().user(0, 0))
            .add();
        pod.container("twice", "twice:1").add();
        let mut same = pod.container("same", "same:1");
        let near = same.port("near", 1);
        same.readiness(Probe::tcp(&near)).add();
        let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("s").key("k"));
        pod.give_kubeconfig(Users::All, &kubeconfig.as_file("kubeconfig"));
    });
    let error = injector.finish().unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("InvalidInjection", Retry::Terminal));
    insta::assert_snapshot!(messages(&error).join("\n"));
}

#[test]
fn ports_collide_by_number_and_protocol_and_on_the_node() {
    let inject = |users: &PodTemplateSpec| {
        let injector = Injector::new(users.clone()).with(|pod| {
            let mut dns = pod.sidecar("dns", "dns:1");
            let (udp, tcp) = (dns.udp_port("queries", 53), dns.port("status", 8080));
            dns.host_port(&udp, 53).host_port(&tcp, 9000).add();
            let mut other = pod.container("other", "other:1");
            assert_eq!(other.udp_port_near("more", 53).number(), 54);
            assert_eq!(other.port_near("also", 53).number(), 53);
            other.add();
        });
        injector.finish()
    };
    let ports = |ports: Value| app(&json!({"ports": ports}));
    let free = json!([
        {"containerPort": 8080, "protocol": "UDP", "hostPort": 9000},
        {"containerPort": 1, "hostPort": 53},
        {"containerPort": 2, "protocol": "SCTP", "hostPort": 53},
    ]);
    let injected = inject(&ports(free)).unwrap();
    assert_eq!(inject(&injected).unwrap(), injected);
    let taken = json!([
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 8080, "protocol": "TCP"},
        {"containerPort": 7, "hostPort": 9000, "hostIP": "10.0.0.1", "name": "status"},
    ]);
    let expected = [
        "ports[53/UDP]: is the port that injected container \"dns\" listens on; use another port",
        "ports[8080]: is the port that injected container \"dns\" listens on; use another port",
        "ports[7].hostPort: is 9000, which injected container \"dns\" uses on the node; use another port of the node",
        "ports[7].name: has the name \"status\" of a port of injected container \"dns\"; rename it, because a Service that selects it by name gets the first",
    ];
    assert_eq!(
        messages(&inject(&ports(taken)).unwrap_err()),
        expected.map(|text| format!("spec.containers[app].{text}"))
    );

    let mut host = ports(json!([]));
    host.spec.as_mut().unwrap().host_network = Some(true);
    let expected = "spec.hostNetwork: is true, but injected container \"dns\" needs port 9000 of the node for its port 8080; remove it";
    assert_eq!(messages(&inject(&host).unwrap_err()), [expected]);
}

#[test]
fn another_host_port_in_an_injected_container_is_a_collision() {
    let inject = |users: PodTemplateSpec| {
        let injector = Injector::new(users).with(|pod| {
            let mut dns = pod.container("dns", "dns:1");
            let tcp = dns.port("status", 8080);
            dns.host_port(&tcp, 9000).add();
        });
        injector.finish()
    };
    let mut injected = inject(app(&json!({}))).unwrap();
    injected.spec.as_mut().unwrap().containers[1].ports.as_mut().unwrap()[0].host_port = Some(9001);
    let expected =
        "spec.containers[dns].ports[0].hostPort: is 9001, unlike in the injected one; rename or remove the container";
    assert_eq!(messages(&inject(injected).unwrap_err()), [expected]);
}

#[test]
fn a_port_that_is_not_the_only_one_with_its_number_is_named_by_what_it_has_alone() {
    let inject = |ports: Value| {
        let injector = Injector::new(app(&json!({"ports": ports}))).with(|pod| {
            let mut dns = pod.container("dns", "dns:1");
            let tcp = dns.port("status", 9090);
            dns.host_port(&tcp, 9000).add();
        });
        messages(&injector.finish().unwrap_err())
    };
    let rest = "is 9000, which injected container \"dns\" uses on the node; use another port of the node";
    for (ports, item) in [
        (json!([{"containerPort": 80, "hostPort": 9000}]), "80"),
        (json!([{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "hostPort": 9000}]), "80"),
        (json!([{"containerPort": 80}, {"containerPort": 80, "name": "web", "hostPort": 9000}]), "web"),
        (json!([{"containerPort": 80, "hostPort": 8000}, {"containerPort": 80, "hostPort": 9000}]), "9000:80"),
        (
            json!([{"containerPort": 80, "hostPort": 8000}, {"containerPort": 80, "hostPort": 9000, "hostIP": "10.0.0.1"}]),
            "10.0.0.1:9000:80",
        ),
    ] {
        assert_eq!(inject(ports), [format!("spec.containers[app].ports[{item}].hostPort: {rest}")]);
    }
}
