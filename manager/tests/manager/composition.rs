//! Kustomizations like those that operators write, from the components of `deploy/kustomize`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{deploy, kubectl_program};

/// All components, in the order in which the chart is generated from them.
pub(crate) const COMPONENTS: [&str; 7] =
    ["high-availability", "monitoring", "metrics-reader", "tracing", "namespaced", "network-policies", "injection"];

/// All components but one.
pub(crate) fn all_but(excluded: &str) -> Vec<&'static str> {
    COMPONENTS.into_iter().filter(|name| *name != excluded).collect()
}

/// All subsets of the components that work. `injection` needs rights in the whole cluster, which `namespaced` removes.
pub(crate) fn combinations() -> impl Iterator<Item = Vec<&'static str>> {
    let sets = (0..1_u32 << COMPONENTS.len()).map(|set| {
        let chosen = COMPONENTS.into_iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        chosen.map(|(_, name)| name).collect::<Vec<_>>()
    });
    sets.filter(|components| !["namespaced", "injection"].iter().all(|name| components.contains(name)))
}

/// Objects by kind and name.
pub(crate) type Objects = BTreeMap<String, Value>;

/// A kustomization in a folder of its own.
pub(crate) struct Composition {
    folder: tempfile::TempDir,
}

impl Composition {
    /// Writes a kustomization with these components. `more` is further YAML of it.
    pub(crate) fn of(components: &[&str], more: &str) -> Self {
        let mut text = "resources:\n- trishanku/deploy/kustomize/default\n".to_owned();
        if !components.is_empty() {
            text += "components:\n";
        }
        for name in components {
            text.extend(["- trishanku/deploy/kustomize/components/", name, "\n"]);
        }
        Self::written(&(text + more))
    }

    /// Writes a kustomization that has a checkout in the folder `trishanku`, as in the documentation.
    pub(crate) fn written(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = relative(folder.path(), &deploy()).display().to_string();
        let text = text.replace("trishanku/deploy/kustomize", &sources);
        std::fs::write(folder.path().join("kustomization.yaml"), text).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    pub(crate) fn objects(&self) -> Objects {
        built(self.folder.path())
    }
}

/// The path to `to` from the folder `from`. Kustomize accepts no absolute paths.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let depth = from.canonicalize().unwrap().components().count() - 1;
    let to = to.canonicalize().unwrap();
    std::iter::repeat_n("..", depth).collect::<PathBuf>().join(to.strip_prefix("/").unwrap())
}

/// What Kustomize builds from a folder.
pub(crate) fn built(folder: &Path) -> Objects {
    let output = Command::new(kubectl_program()).arg("kustomize").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    objects(&String::from_utf8(output.stdout).unwrap())
}

/// The objects of YAML documents.
pub(crate) fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let mut objects = Objects::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let name = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let key = format!("{} {}", name("/kind"), name("/metadata/name"));
        assert!(objects.insert(key.clone(), document).is_none(), "two objects are called {key}");
    }
    objects
}

/// The container of the manager.
pub(crate) fn container(objects: &Objects) -> &Value {
    &objects["Deployment trishanku-manager"]["spec"]["template"]["spec"]["containers"][0]
}

/// The value of an environment variable of the manager.
pub(crate) fn variable<'o>(objects: &'o Objects, name: &str) -> Option<&'o str> {
    let variables = container(objects)["env"].as_array().unwrap();
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

pub(crate) fn has_argument(objects: &Objects, argument: &str) -> bool {
    container(objects)["args"].as_array().unwrap().iter().any(|present| present == argument)
}
