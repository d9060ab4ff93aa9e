//! Features of the API server on top of its store.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, mpsc};

use anyhow::{Context, ensure};
use trishanku_e2e::kubectl::config_maps;
use trishanku_e2e::{Cluster, wait};

const WIDGETS: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.org
spec:
  group: example.org
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 1}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
";

fn widget(size: i32) -> String {
    format!(
        "apiVersion: example.org/v1\nkind: Widget\nmetadata:\n  name: one\n  namespace: widgets\nspec:\n  size: {size}\n"
    )
}

pub(crate) fn custom_resources_are_served_once_they_are_defined(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("widgets")?;
    cluster.kubectl_with(["create", "-f", "-"], WIDGETS)?;
    let wait = "wait crd/widgets.example.org --for=condition=Established --timeout=60s";
    cluster.kubectl(wait.split(' '))?;
    wait::until("the new kind to be served", || cluster.kubectl_with(["apply", "-f", "-"], &widget(1)).map(Some))?;
    cluster.kubectl_with(["apply", "-f", "-"], &widget(2))?;
    let stored = cluster.object("widget one -n widgets")?;
    ensure!(stored["spec"]["size"] == 2);
    ensure!(stored["metadata"]["generation"] == 2);
    let refused = cluster.kubectl_failing(["apply", "-f", "-"], &widget(0))?;
    ensure!(refused.contains("spec.size"), "{refused}");
    // Deleting the definition deletes the resources.
    cluster.kubectl("delete crd widgets.example.org --wait=false".split(' '))?;
    cluster.wait_gone("crd widgets.example.org")?;
    cluster.kubectl_failing("get widgets -n widgets".split(' '), "")?;
    Ok(())
}

pub(crate) fn a_watch_shows_every_change_in_order(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("watched")?;
    let mut kubectl = cluster
        .kubectl_command()
        .args("get configmaps -n watched -l watched=yes -w --output-watch-events".split(' '))
        .args(["-o", r#"jsonpath={.type} {.object.metadata.name} {.object.data.step}{"\n"}"#])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(kubectl.stdout.take().context("the process has no pipe")?);
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            if sender.send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    });
    let outcome = change_and_read(cluster, &receiver);
    kubectl.kill()?;
    kubectl.wait()?;
    drop(receiver);
    reader.join().ok().context("the reader panicked")?;
    outcome
}

fn change_and_read(cluster: &Cluster, lines: &mpsc::Receiver<String>) -> anyhow::Result<()> {
    // kubectl lists before it watches, and does not report when: the first thing that it saw must be the object's first state.
    let map = |n: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  namespace: watched\n  labels: {{watched: \"yes\"}}\ndata: {{step: \"{n}\"}}\n"
        )
    };
    let next = || lines.recv_timeout(wait::PATIENCE).context("no event arrived");
    cluster.kubectl_with(["create", "-f", "-"], &map(0))?;
    let line = next()?;
    ensure!(line == "ADDED m 0", "{line} arrived for the creation");
    for n in 1..=20 {
        cluster.kubectl_with(["replace", "-f", "-"], &map(n))?;
    }
    cluster.kubectl("delete configmap m -n watched".split(' '))?;
    for n in 1..=20 {
        let line = next()?;
        ensure!(line == format!("MODIFIED m {n}"), "{line} arrived for change {n}");
    }
    let line = next()?;
    ensure!(line == "DELETED m 20", "{line} arrived for the deletion");
    Ok(())
}

pub(crate) fn server_side_apply_merges_fields_and_refuses_conflicts(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("applied")?;
    let map = |data: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: shared, namespace: applied}}\ndata: {{{data}}}\n")
    };
    let by = |manager: &'static str| ["apply", "--server-side", manager, "-f", "-"];
    cluster.kubectl_with(by("--field-manager=ann"), &map("a: '1', both: ann"))?;
    cluster.kubectl_with(by("--field-manager=bob"), &map("b: '2'"))?;
    let refused = cluster.kubectl_failing(by("--field-manager=bob"), &map("b: '2', both: bob"))?;
    ensure!(refused.contains("conflict with \"ann\""), "{refused}");
    let forced = by("--field-manager=bob").into_iter().chain(["--force-conflicts"]);
    cluster.kubectl_with(forced, &map("b: '2', both: bob"))?;
    // A field that its manager no longer applies is removed, unless another manager owns it.
    cluster.kubectl_with(by("--field-manager=ann"), &map("c: '3'"))?;
    let shared = cluster.object("configmap shared -n applied")?;
    let expected = serde_json::json!({"b": "2", "both": "bob", "c": "3"});
    ensure!(shared["data"] == expected, "{}", shared["data"]);
    Ok(())
}

pub(crate) fn a_paged_list_is_complete_and_of_one_moment(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("paged")?;
    let create = ["create", "-n", "paged", "-f", "-"];
    cluster.kubectl_with(create, &config_maps("page", 0..45))?;
    let path = "/api/v1/namespaces/paged/configmaps?limit=10&fieldSelector=metadata.name!=kube-root-ca.crt";
    let mut page = cluster.raw(path)?;
    let moment = page["metadata"]["resourceVersion"].clone();
    // Neither of these existed at the revision of the first page.
    cluster.kubectl_with(create, &config_maps("page", 45..46))?;
    cluster.kubectl("delete configmap page-0044 -n paged".split(' '))?;
    let mut names = Vec::new();
    loop {
        let items = page["items"].as_array().context("a list has items")?;
        names.extend(items.iter().map(|item| item["metadata"]["name"].clone()));
        ensure!(page["metadata"]["resourceVersion"] == moment);
        let Some(next) = page["metadata"]["continue"].as_str().filter(|c| !c.is_empty()) else {
            break;
        };
        ensure!(items.len() == 10, "a page has {} items", items.len());
        page = cluster.raw(&format!("{path}&continue={next}"))?;
    }
    let expected: Vec<_> = (0..45).map(|n| format!("page-{n:04}")).collect();
    ensure!(names == expected, "{names:?}");
    // kubectl's own paging of the current state.
    let listed = cluster.kubectl("get configmaps -n paged --chunk-size=7 -o name".split(' '))?;
    let listed = listed.lines().filter(|name| name.contains("page-")).count();
    ensure!(listed == 45, "kubectl listed {listed} objects");
    Ok(())
}
