//! A generated controller equals the example, which is built and tested, and a real kube-apiserver accepts its manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trishanku::plane::Assets;
use trishanku_testkit::TestCluster;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const EXAMPLE: &str = "examples/rain-gauge";

/// Creates an empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("cannot remove {}: {error}", folder.display())
        }
        _ => {}
    }
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    folder
}

fn trishanku(here: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trishanku")).current_dir(here).args(args).output().expect("the binary was built")
}

/// The output of a command that must succeed.
fn said(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{said}{complained}");
    assert!(!complained.contains("Warning:"), "{complained}");
    said
}

/// The target triple of this machine.
fn host() -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let version = said(&cargo.args(["--version", "--verbose"]).output().expect("cargo runs this test"));
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap_or_else(|| panic!("cargo names no host: {version}")).to_owned()
}

/// The packages of the crate in `folder`, as cargo reports them without network access.
///
/// A build fetches only packages for its target. Without `--filter-platform` or `--no-deps`, cargo also needs packages
/// for all other platforms, and fails on machines that never fetched them.
fn metadata(folder: &Path, args: &[&str]) -> serde_json::Value {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--offline", "--format-version=1", "--quiet"]).args(args).current_dir(folder);
    serde_json::from_str(&said(&metadata.output().expect("cargo runs this test"))).expect("it is JSON")
}

/// The files below `folder`, by relative path.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("it exists") {
            let path = entry.expect("it exists").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("a text file");
                found.insert(path.strip_prefix(folder).expect("it is below the folder").to_owned(), text);
            }
        }
    }
    found
}

/// The example is the output of `new controller rain-gauge`, except that it is a member of this workspace without an
/// image. So it is built and tested in the same way, but nothing is built twice.
#[test]
fn the_example_is_what_a_new_controller_is() {
    let parent = folder("scaffold-example");
    let made = said(&trishanku(&parent, &["new", "controller", "rain-gauge", "--framework", CHECKOUT]));
    assert_eq!(
        made,
        "Made rain-gauge, a controller of RainGauge objects\n\n  \
         cd rain-gauge\n  \
         cargo test                 # on a real kube-apiserver\n  \
         kubectl apply -k deploy    # to your cluster; README.md says more\n"
    );
    let (mut new, example) = (files(&parent.join("rain-gauge")), files(&Path::new(CHECKOUT).join(EXAMPLE)));
    let root = std::fs::canonicalize(CHECKOUT).expect("it exists");
    let manifest = new.get_mut(Path::new("Cargo.toml")).expect("it is generated");
    let (member, workspace) = manifest.split_once("\n# A workspace of its own").expect("it has this part");
    assert!(workspace.contains("\n[workspace]\n"), "{workspace}");
    *manifest = member.replace(&format!("{}/", root.display()), "../../");
    let readme = new.get_mut(Path::new("README.md")).expect("it is generated");
    readme.truncate(readme.find("\n## The image\n").expect("it has this part"));
    for file in ["Dockerfile", ".dockerignore"] {
        assert!(new.remove(Path::new(file)).is_some(), "{file}");
    }
    assert_eq!(new.keys().collect::<Vec<_>>(), example.keys().collect::<Vec<_>>());
    for (path, text) in &new {
        assert_eq!(text, &example[path], "{}", path.display());
    }
}

#[tokio::test]
async fn a_new_controller_is_a_crate_by_itself_and_is_taken_by_an_apiserver() {
    let parent = folder("scaffold");
    said(&trishanku(&parent, &["new", "controller", "rain-gauge", "--framework", CHECKOUT]));
    let new = parent.join("rain-gauge");
    // The locked versions of this workspace, so that nothing is fetched.
    std::fs::copy(Path::new(CHECKOUT).join("Cargo.lock"), new.join("Cargo.lock")).expect("both are accessible");
    let metadata = metadata(&new, &["--filter-platform", &host()]);
    let versions = |of: &str| {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        packages.filter(|package| package["name"] == of).map(|package| package["version"].clone()).collect::<Vec<_>>()
    };
    for of in ["rain-gauge", "kube", "k8s-openapi", "schemars", "trishanku-framework", "trishanku-testkit"] {
        assert_eq!(versions(of).len(), 1, "{of} as the framework has it: {:?}", versions(of));
    }

    let cluster = TestCluster::shared().await;
    let kubectl = Assets::find(None).expect("kubectl is where kube-apiserver is").program("kubectl");
    let kubectl = |args: &[&str]| {
        let mut command = Command::new(&kubectl);
        command.current_dir(&new).env("KUBECONFIG", cluster.kubeconfig(None)).args(args);
        said(&command.output().expect("it exists"))
    };
    // A dry run needs the namespace.
    kubectl(&["apply", "-f", "deploy/namespace.yaml"]);
    let deployed = kubectl(&["apply", "-k", "deploy", "--dry-run=server"]);
    let mut deployed: Vec<_> = deployed.lines().collect();
    deployed.sort_unstable();
    assert_eq!(
        deployed,
        [
            "clusterrole.rbac.authorization.k8s.io/rain-gauge created (server dry run)",
            "clusterrolebinding.rbac.authorization.k8s.io/rain-gauge created (server dry run)",
            "customresourcedefinition.apiextensions.k8s.io/raingauges.example.org created (server dry run)",
            "deployment.apps/rain-gauge created (server dry run)",
            "namespace/rain-gauge unchanged (server dry run)",
            "role.rbac.authorization.k8s.io/rain-gauge-lease created (server dry run)",
            "rolebinding.rbac.authorization.k8s.io/rain-gauge-lease created (server dry run)",
            "serviceaccount/rain-gauge created (server dry run)",
        ]
    );
}

/// The instructions of a Dockerfile without comments, with continued lines joined.
fn instructions(dockerfile: &str) -> Vec<(String, String)> {
    let lines = dockerfile.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let lines = lines.replace("\\\n", " ");
    let words = lines.lines().filter_map(|line| line.split_once(' '));
    words.map(|(what, rest)| (what.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

/// Checks the image without building it.
#[test]
fn the_image_of_a_new_controller_has_what_its_deployment_runs() {
    let parent = folder("scaffold-image");
    said(&trishanku(&parent, &["new", "controller", "rain-gauge", "--framework", CHECKOUT]));
    let (new, context) = (parent.join("rain-gauge"), parent.join("context"));
    std::fs::copy(Path::new(CHECKOUT).join("Cargo.lock"), new.join("Cargo.lock")).expect("both are accessible");
    let there = files(&new);
    let text = |path: &str| there[Path::new(path)].as_str();
    let instructions = instructions(text("Dockerfile"));
    let all = |what: &str| {
        let found = instructions.iter().filter(|(instruction, _)| instruction == what);
        found.map(|(_, rest)| rest.as_str()).collect::<Vec<_>>()
    };
    let only = |what: &str| match all(what)[..] {
        [only] => only,
        ref other => panic!("{what}: {other:?}"),
    };
    let names = ["FROM", "WORKDIR", "COPY", "COPY", "RUN", "FROM", "COPY", "USER", "EXPOSE", "ENTRYPOINT"];
    assert_eq!(instructions.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);

    // The copied files exist, are not ignored, and are a complete crate.
    let ignored: Vec<_> = text(".dockerignore").lines().filter(|line| !line.starts_with('#')).collect();
    let (nothing, let_in) = ignored.split_first().expect("it is not empty");
    assert_eq!(*nothing, "*");
    let [manifests, sources, program] = all("COPY")[..] else { panic!("{:?}", all("COPY")) };
    let mut copied: Vec<_> = manifests.trim_end_matches(" ./").split(' ').collect();
    copied.extend(sources.split(' ').next());
    copied.sort_unstable();
    assert_eq!(copied, let_in.iter().map(|line| line.trim_start_matches('!')).collect::<Vec<_>>());
    for (path, text) in there.iter().filter(|(path, _)| copied.iter().any(|copied| path.starts_with(copied))) {
        let path = context.join(path);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder is writable");
        std::fs::write(path, text).expect("the folder is writable");
    }
    let metadata = metadata(&context, &["--no-deps"]);
    let package = &metadata["packages"][0];
    let programs = package["targets"].as_array().into_iter().flatten().filter(|target| target["kind"][0] == "bin");
    assert_eq!(programs.map(|target| target["name"].clone()).collect::<Vec<_>>(), ["rain-gauge"]);

    // The build stage has the framework and a recent compiler; the final image has the matching C library.
    let run = only("RUN");
    assert!(
        run.ends_with("cargo build --release --locked --bin rain-gauge && cp target/release/rain-gauge /rain-gauge"),
        "{run}"
    );
    let root = std::fs::canonicalize(CHECKOUT).expect("it exists");
    let mount = format!("--mount=type=bind,from=trishanku,target={}", root.display());
    assert!(run.contains(&mount), "{run}");
    let command = format!("docker build --tag rain-gauge --build-context trishanku='{}' .", root.display());
    assert!(text("README.md").contains(&command), "{}", text("README.md"));
    let rust = package["rust_version"].as_str().expect("it has a rust-version");
    assert_eq!(
        all("FROM"),
        [&format!("docker.io/library/rust:{rust}-slim-bookworm AS build"), "gcr.io/distroless/cc-debian12:nonroot"]
    );

    // The command and its user.
    let deployment = text("deploy/deployment.yaml");
    assert_eq!((program, only("ENTRYPOINT")), ("--from=build /rain-gauge /rain-gauge", r#"["/rain-gauge"]"#));
    for line in ["command: [/rain-gauge]", "runAsUser: 65532", "containerPort: 8081", "containerPort: 8080"] {
        assert!(deployment.contains(line), "{line} is not in\n{deployment}");
    }
    assert_eq!((only("USER"), only("EXPOSE")), ("65532:65532", "8081 8080"));
}

#[test]
fn what_cannot_be_made_is_explained_and_nothing_is_left() {
    let parent = folder("scaffold-refused");
    std::fs::create_dir(parent.join("there")).expect("the folder is writable");
    for (args, code, expected) in [
        (["there", "--framework", CHECKOUT], 1, "already exists; choose another name"),
        (["Rain_Gauge", "--framework", CHECKOUT], 2, "use lower-case letters, digits and hyphens"),
        (["rain", "--framework", "/nowhere"], 2, "\"/nowhere\" cannot be read"),
    ] {
        let refused = trishanku(&parent, &[&["new", "controller"], &args[..]].concat());
        let complained = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{complained}");
        assert!(complained.contains(expected), "{complained}");
    }
    let left: Vec<_> =
        std::fs::read_dir(&parent).expect("it exists").map(|entry| entry.expect("readable").file_name()).collect();
    assert_eq!(left, ["there"]);
}
