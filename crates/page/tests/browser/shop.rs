//! The history of a small shop: a Deployment, its users and controllers, and a merge with a conflict.

use git2::Oid;
use serde_json::{Value, json};

use crate::world::{Put, World};

/// The key of the Deployment.
const WEB: &str = "/registry/deployments/shop/web";
/// The path of its page.
pub(crate) const OBJECT: &str = "/object/deployments/shop/web";
/// The path of the page of a deleted object.
pub(crate) const DELETED: &str = "/object/configmaps/shop/summer-menu";

/// A branch, and its commits that have a role in scenarios.
pub(crate) struct Shop {
    pub(crate) world: World,
    /// A commit of jane.
    pub(crate) commit: Oid,
    /// The merge with a conflict.
    pub(crate) merge: Oid,
    clock: u32,
    managers: Vec<Value>,
    replicas: u32,
    image: u32,
    /// The number of `ReplicaSets` that the controller has made.
    revision: u32,
}

impl Shop {
    /// Writes the history. The branch starts with this many older commits.
    pub(crate) fn new(older: usize) -> Self {
        let world = World::named(&["desk", "kube-controller-manager"]);
        let none = Oid::ZERO_SHA1;
        let mut shop = Self {
            world,
            commit: none,
            merge: none,
            clock: 0,
            managers: Vec::new(),
            replicas: 2,
            image: 1,
            revision: 0,
        };
        let lease = |number: usize| {
            let object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": format!("node-{}", number % 3), "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": format!("node-{}", number % 3), "leaseTransitions": number},
            });
            (format!("/registry/leases/kube-node-lease/node-{}", number % 3), object.to_string())
        };
        shop.world.put_each(0, "system:node:node", (0..older).map(lease));
        shop.open();
        shop
    }

    fn open(&mut self) {
        let menu = |name: &str| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"},
                             "data": {"soup": "tomato", "tea": "mint"}});
            map.to_string()
        };
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "till", "namespace": "shop"},
                            "data": {"pin": "MTIzNA=="}});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
                             "spec": {"ports": [{"port": 80, "targetPort": 8080}], "selector": {"app": "web"}}});
        let (summer, winter) = ("/registry/configmaps/shop/summer-menu", "/registry/configmaps/shop/winter-menu");
        self.world.put_by(0, "jane", &[(summer, Some(&menu("summer-menu"))), (winter, Some(&menu("winter-menu")))]);
        self.world.put_by(0, "jane", &[("/registry/secrets/shop/till", Some(&secret.to_string()))]);
        self.world.put_by(0, "jane", &[("/registry/services/specs/shop/web", Some(&service.to_string()))]);
        let created = self.deployment("kubectl-create");
        self.commit = self.world.put_by(0, "jane", &[(WEB, Some(&created))]);
        self.world.merge_into(1, 0, &[(WEB, Some(&created))], "");
        let deployment = "system:serviceaccount:kube-system:deployment-controller";
        let pod = |name: &str| format!("/registry/pods/shop/{name}");
        let pods = [pod("web-65b454cd57-4xk2p"), pod("web-65b454cd57-j8xsj")];
        let replica_set = "/registry/replicasets/shop/web-65b454cd57";
        self.world.put_by(1, deployment, &[(replica_set, Some(r#"{"apiVersion":"apps/v1","kind":"ReplicaSet"}"#))]);
        let pod = r#"{"apiVersion":"v1","kind":"Pod"}"#;
        let puts: [Put<'_>; 3] = [
            (replica_set, Some(r#"{"apiVersion":"apps/v1","kind":"ReplicaSet"}"#)),
            (&pods[0], Some(pod)),
            (&pods[1], Some(pod)),
        ];
        for put in &puts[1..] {
            self.world.put_by(1, "system:serviceaccount:kube-system:replicaset-controller", &[*put]);
        }
        self.world.merge(1, &puts, "");
        self.image = 2;
        self.write("bob", "kubectl-set");
        self.replicas = 3;
        self.write("jane", "kubectl-scale");
        self.replicas = 5;
        let scaled = self.deployment("kube-controller-manager");
        (self.replicas, self.revision) = (3, 2);
        let autoscaler = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
        self.world.put_by(1, autoscaler, &[(WEB, Some(&scaled))]);
        let notes = format!("Conflict: {WEB} spec.replicas: kept 3, lost 5\n");
        let merged = self.deployment("kube-controller-manager");
        self.merge = self.world.merge(1, &[(WEB, Some(&merged))], &notes);
        self.world.put_by(0, "bob", &[(summer, None)]);
        self.image = 3;
        self.write("jane", "kubectl-set");
    }

    /// Changes the number of replicas. Returns the commit.
    pub(crate) fn scale(&mut self) -> Oid {
        self.replicas += 1;
        self.write("jane", "kubectl-scale")
    }

    fn write(&mut self, user: &str, program: &str) -> Oid {
        let value = self.deployment(program);
        self.world.put_by(0, user, &[(WEB, Some(&value))])
    }

    /// Returns the Deployment after a change by a program.
    fn deployment(&mut self, program: &str) -> String {
        self.clock += 1;
        let (minute, second) = (self.clock / 60 % 60, self.clock % 60);
        self.managers.retain(|entry| entry["manager"] != program);
        let time = format!("2023-11-14T22:{minute:02}:{second:02}Z");
        self.managers.push(json!({"manager": program, "operation": "Update", "time": time}));
        let image = format!("registry.example/shop/web:1.{}", self.image);
        let mut metadata =
            json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}, "managedFields": self.managers});
        if self.revision > 0 {
            metadata["annotations"] = json!({"deployment.kubernetes.io/revision": self.revision.to_string()});
        }
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": image, "ports": [{"containerPort": 8080}]}]},
                },
            },
        });
        object.to_string()
    }
}
