//! A third-party controller with a heaven of ten lines: Kubernetes' own sample controller, which creates a Deployment for each
//! Foo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use trishanku_e2e::{Cluster, git, wait};

const FOO: &str = r#"{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "foo"}, "spec": {"deploymentName": "of-foo", "replicas": 2}}"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program and its `CustomResourceDefinition`, built from its Go module if missing.
fn sample() -> anyhow::Result<PathBuf> {
    let output = Command::new(root().join("hack/sample-controller.sh")).output().context("cannot run the script")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

pub(crate) fn arguments() -> anyhow::Result<Vec<String>> {
    let manifest = root().join("e2e/tests/headless/sample-controller.yaml");
    let lines = std::fs::read_to_string(&manifest)?.lines().count();
    ensure!(lines <= 10, "{lines} lines are more than ten");
    let program = sample()?.join("sample-controller");
    Ok(vec![
        format!("--filename={}", manifest.display()),
        format!("--image-program=sample-controller={}", program.display()),
    ])
}

pub(crate) fn mesh_somebody_elses_controller_works_in_a_heaven_of_its_own(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    let definition = sample()?.join("crd.yaml").display().to_string();
    cluster.kubectl(["create", "--filename", &definition])?;
    wait::until_true("the new kind to be served", || {
        cluster.kubectl_with(["apply", "--filename=-"], FOO).map(|_| true)
    })?;
    // The desk has its Deployment, and the pods that another heaven creates for it; the controller has seen these.
    wait::until_true("the Foo's status to count its pods", || {
        let deployment = cluster.object("deployment of-foo")?;
        let pods = cluster.kubectl(["get", "pods", "--selector=controller=foo", "-o", "name"])?;
        Ok(deployment["spec"]["replicas"] == 2 && pods.lines().count() == 2)
    })?;
    cluster.wait_agreed()?;
    let sample = cluster.heaven("sample")?;
    let made =
        ["log", "--no-merges", "--format=%cn", &sample.branch, "--diff-filter=A", "--", "deployments/default/of-foo"];
    ensure!(git::run(&sample.repository, &made)?.trim() == "sample", "another heaven created the Deployment");
    cluster.kubectl(["delete", "foo", "foo"])?;
    cluster.wait_gone("deployment of-foo")?;
    cluster.wait_gone("pods --selector=controller=foo")?;
    Ok(())
}
