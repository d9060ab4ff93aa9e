//! Certificates: which are accepted, and how they are renewed while a heaven runs.

mod served;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Command;

use serde_json::json;
use time::{Duration, OffsetDateTime};
use trishanku::demo::Kubectl;
use trishanku::plane::Assets;
use trishanku_api::TrishankuHeavenSpec;
use trishanku_e2e::programs;
use trishanku_heaven::certificates::{RenewalCriteria, User, issue};
use trishanku_heaven_plan::names;

use self::served::Asking;
use crate::machine::Machine;

const MINE: &str = "apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: mine}
spec:
  certificates: {controller: {userName: me, groupName: 'system:masters'}}
  eventsEtcd: {local: {}}
  app:
    kubeconfigMountPath: /var/run/heaven/kubeconfig
    podTemplate: {spec: {containers: [{name: app, image: 'sleep:v1', args: [infinity]}]}}
";

/// The certificates of the heaven, as if two thirds of their lifetime had passed, so that they are due in `due_in`.
fn made_long_ago(machine: &Machine, due_in: Duration) {
    let spec = json!({"certificates": {"controller": {"userName": "me", "groupName": "system:masters"}}});
    let spec: TrishankuHeavenSpec = serde_json::from_value(spec).unwrap();
    let user = User { name: "me".to_owned(), group: Some("system:masters".to_owned()) };
    // They are valid from five minutes before their creation, and for a year after it.
    let lasts = Duration::days(365) + Duration::minutes(5);
    let now = OffsetDateTime::now_utc() + due_in + Duration::minutes(5) - lasts * 2 / 3;
    let terms = RenewalCriteria { now, reissue_before: None };
    let names = names::Certificates::of("mine", &spec);
    let issued = issue(&names, Some(&user), &std::collections::BTreeMap::new(), &terms).unwrap();
    let closed = |path: &std::path::Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
    closed(machine.home().dir());
    for wanted in issued.secrets {
        let folder = machine.home().secrets().join(&wanted.name);
        closed(&folder);
        for (key, value) in wanted.data {
            fs::write(folder.join(key), value).unwrap();
        }
    }
}

#[test]
fn certificates_are_renewed_while_their_heaven_runs() {
    let mut machine = Machine::new();
    let file = machine.write("mine.yaml", MINE);
    made_long_ago(&machine, Duration::seconds(15));
    let own = "plane/heavens/mine/controller/kubeconfig";
    machine.start(&[file], &["--image-program=sleep=sleep"]);
    let pid = |name: &str| machine.component(name).and_then(|component| component.pid);
    let (app, apiserver) = (pid("mine/app"), pid("mine/kube-apiserver"));
    let (before, admins) = (machine.read(own), machine.read("plane/kubeconfig"));
    let old = machine.write("old-kubeconfig", &admins);
    let asking = Asking::start(&machine, "mine");
    let first = asking.file();
    asking.until_served(&first);

    machine.until("the renewal", || machine.printed().contains("renewed the certificates"));
    let printed = machine.printed();
    for secret in ["mine-cert-kubernetes", "mine-admin", "mine-controller"] {
        assert!(printed.contains(secret), "{printed}");
    }
    assert!(!printed.contains("mine-cert-ca") && printed.contains("restarts: mine/app"), "{printed}");
    // The controller restarts with its new certificate; kube-apiserver reads its own again.
    machine.until("the controller to be back", || {
        machine.component("mine/app").is_some_and(|now| now.pid.is_some() && now.pid != app)
    });
    let second = asking.file();
    assert!(first != second);
    asking.until_served(&second);
    assert_eq!(asking.end(), [first, second], "old and new certificate in order, without a failed request");
    assert!(machine.read(own) != before && machine.read("plane/kubeconfig") != admins);
    assert_eq!(pid("mine/kube-apiserver"), apiserver);
    let program = Assets::find(None).unwrap().program("kubectl");
    for kubeconfig in [old, machine.path(own), machine.path("plane/kubeconfig")] {
        Kubectl::new(program.clone(), kubeconfig).run(&["get", "namespaces"]).unwrap();
    }
    stores_talk_to_their_own_only(&machine);
    machine.stop();
}

/// Other users of the machine can reach its loopback ports, too.
fn stores_talk_to_their_own_only(machine: &Machine) {
    let keys = machine.home().keys();
    let file = |name: &str| keys.join(name).display().to_string();
    let (authority, cert, key) = (file("store-ca.crt"), file("store-client.crt"), file("store-client.key"));
    let gitcd = machine.port("mine/gitcd");
    let asked = |arguments: &[String]| {
        let mut command = Command::new(programs::folder().unwrap().join("gitcd"));
        command.arg("health").arg(format!("--endpoint=https://127.0.0.1:{gitcd}")).args(arguments);
        command.output().unwrap().status.success()
    };
    let trust = format!("--cacert={authority}");
    assert!(asked(&[trust.clone(), format!("--cert={cert}"), format!("--key={key}")]));
    assert!(!asked(std::slice::from_ref(&trust)), "it must reject clients without a certificate");
    // A certificate of the heaven's own CA belongs to a user or controller, who must use kube-apiserver.
    let persons = machine.home().secrets().join("mine-admin");
    let other = ["cert", "key"].into_iter().zip(["tls.crt", "tls.key"]);
    let other = other.map(|(flag, file)| format!("--{flag}={}", persons.join(file).display()));
    assert!(!asked(&[vec![trust], other.collect()].concat()), "it must reject users of kube-apiserver");
    for server in ["gitcd", "events-etcd", "events-etcd-peers"] {
        let mut connection = TcpStream::connect(("127.0.0.1", machine.port(&format!("mine/{server}")))).unwrap();
        connection.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _cut = connection.read_to_end(&mut answer);
        assert!(!answer.windows(4).any(|word| word == b" 200"), "{server} must reject unauthenticated clients");
    }
}
