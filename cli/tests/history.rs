//! `trishanku log`, `trishanku blame` and `trishanku diff`: their requests to gitcd, and their errors.
//!
//! Here gitcd is a script that prints its arguments; the tests in `e2e/` use the real one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use trishanku::heavens::{HeavenRecord, Kind};
use trishanku::plane::state::{Form, Settings};
use trishanku::plane::{Home, State};

const GITCD: &str = r#"#!/bin/sh
case "$*" in
*--limit=1\ *deployments/shop/nothing*)
  echo 'gitcd: "x" was never in this branch (its keys begin with "/registry"): deployments/shop/ has api, web' >&2; exit 1 ;;
*--limit=1\ *nothing*)
  echo 'gitcd: "x" was never in this branch (its keys begin with "/registry"): the branch has deployments/' >&2; exit 1 ;;
*--limit=1\ *broken*) echo 'gitcd: it is damaged' >&2; exit 1 ;;
*--limit=1\ *) echo '[]' ;;
*--since=nothing*) echo '{"keys":[{"fields":[{"path":"spec","from":null,"to":{"group":"rain.org","scope":"Namespaced",
  "names":{"plural":"raingauges","singular":"raingauge","kind":"RainGauge","shortNames":["rg"]}}}]}]}'; exit 1 ;;
*) printf '%s\n' "$@"; exit 1 ;;
esac
"#;

struct Plane {
    dir: TempDir,
}

impl Plane {
    fn new(form: Form, heavens: &[&str]) -> Self {
        let plane = Self { dir: tempfile::tempdir().expect("the temp folder is writable") };
        let gitcd = plane.dir.path().join("gitcd");
        std::fs::write(&gitcd, GITCD).expect("the folder is writable");
        std::fs::set_permissions(&gitcd, PermissionsExt::from_mode(0o755)).expect("the file is writable");
        let home = plane.home();
        home.create().expect("the folder is writable");
        let heavens = heavens.iter().map(|name| HeavenRecord {
            name: (*name).to_owned(),
            kind: Kind::Heaven,
            branch: format!("refs/heads/{name}/data"),
            metadata: (*name != "old").then(|| format!("refs/heads/{name}/metadata")),
            repository: repository(home.dir(), name),
            gitcd_port: None,
            kubeconfig: (*name != "merge").then(|| home.kubeconfig()),
            remotes: Vec::new(),
        });
        let settings = Settings { form, ..Settings::default() };
        let state = State { settings, heavens: heavens.collect(), ..State::default() };
        state.save(&home.state_file()).expect("the folder is writable");
        plane
    }

    fn home(&self) -> Home {
        Home::at(&self.dir.path().join("home"))
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
        command.arg("--dir").arg(self.home().dir()).args(args).env_remove("TRISHANKU_HEAVEN").env_remove("GITCD_REPO");
        command.env("TRISHANKU_GITCD", self.dir.path().join("gitcd")).output().expect("the binary was built")
    }

    /// The arguments of gitcd after those that name the branch.
    fn asked(&self, args: &[&str]) -> Vec<String> {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "the code of gitcd: {output:?}");
        let words: Vec<_> =
            String::from_utf8(output.stdout).expect("the output is UTF-8").lines().map(ToOwned::to_owned).collect();
        assert_eq!((&*words[1], &*words[5]), ("--repo", "--key-prefixes=default=/registry"), "{words:?}");
        [&words[..1], &words[6..]].concat()
    }

    /// The error of a command that fails before it runs gitcd.
    fn complaint(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).expect("the output is UTF-8")
    }
}

fn repository(dir: &Path, name: &str) -> std::path::PathBuf {
    let path = dir.join(format!("{name}.git"));
    std::fs::create_dir_all(&path).expect("the folder is writable");
    path
}

#[test]
fn the_branch_of_a_control_plane_of_ones_own_is_selected_by_its_repository() {
    let plane = Plane::new(Form::Manifests, &["desk"]);
    let own = plane.dir.path().join("own.git");
    let repo = format!("--repo={}", own.display());
    for (reference, expected) in [
        (&[][..], ["refs/heads/main", "refs/gitcd/metadata/main"]),
        (&["--data-reference=refs/heads/a/b"], ["refs/heads/a/b", "refs/gitcd/metadata/a/b"]),
        (&["--data-reference=refs/x", "--metadata-reference=refs/y"], ["refs/x", "refs/y"]),
    ] {
        for command in [&["log", "deploy/nginx"][..], &["blame", "deploy/nginx"], &["diff", "--since=10m"]] {
            let output = plane.run(&[command, &[&repo], reference].concat());
            let words = String::from_utf8(output.stdout).expect("the output is UTF-8");
            let [data, metadata] = expected;
            let expected = format!(
                "{}\n--repo\n{}\n--data-reference-names=default={data}\n--metadata-reference-names=default={metadata}\n",
                command[0],
                own.display()
            );
            assert!(words.starts_with(&expected), "{words}");
        }
    }
    let complaint = plane.complaint(&["log", "--data-reference=refs/heads/a"]);
    assert!(complaint.contains("--repo"), "{complaint}");
}

#[test]
fn names_of_kubectl_become_keys() {
    let plane = Plane::new(Form::Manifests, &["desk"]);
    for (args, asked) in [
        (&["log", "deploy/nginx", "-n", "shop"][..], "log --limit=40 -- deployments/shop/nginx"),
        (&["log", "-p", "cm", "prices", "--namespace=shop"], "log --limit=40 --patch -- configmaps/shop/prices"),
        (&["log", "svc/web", "--since=10m", "--limit=3"], "log --limit=3 --since=10m -- services/specs/default/web"),
        (&["log", "node/one", "-n", "shop", "--json"], "log --limit=40 --json -- minions/one"),
        (&["log", "rg/roof", "-n", "shop"], "log --limit=40 -- rain.org/raingauges/shop/roof"),
        (&["log", "--whole"], "log --limit=40 --whole"),
        (&["blame", "deploy/nginx", "-n", "shop"], "blame --at=now -- deployments/shop/nginx"),
        (
            &["blame", "cm", "prices", "--field=data[\"a.b\"]", "--at=10m", "--json"],
            "blame --at=10m --field=data[\"a.b\"] --json -- configmaps/default/prices",
        ),
        (&["diff", "--since=10m"], "diff --since=10m --until=now --"),
        (
            &["diff", "--since=10m", "deploy/a", "svc/b", "-n", "n"],
            "diff --since=10m --until=now -- deployments/n/a services/specs/n/b",
        ),
        (&["diff", "--since=1h", "--until=5m", "po", "--json"], "diff --since=1h --until=5m --json -- pods/default/"),
        (
            &["diff", "--since=4711", "raingauge", "-A", "--name-only"],
            "diff --since=4711 --until=now --name-only -- rain.org/raingauges/",
        ),
    ] {
        assert_eq!(plane.asked(args).join(" "), asked, "{args:?}");
    }
    let all = plane.asked(&["diff", "--since=10m", "-n", "shop"]);
    for key in ["pods/shop/", "services/specs/shop/", "rain.org/raingauges/shop/", "namespaces/shop"] {
        assert!(all.iter().any(|word| word == key), "{key}: {all:?}");
    }
    assert!(!all.iter().any(|word| word.starts_with("minions")), "{all:?}");
}

#[test]
fn what_cannot_be_meant_is_said_with_what_could_be() {
    let plane = Plane::new(Form::Manifests, &["desk"]);
    for (args, words) in [
        (
            &["log", "deplyment/x"][..],
            "there is no kind \"deplyment\", neither in Kubernetes nor among the CustomResourceDefinitions of this store; did you mean deployments?",
        ),
        (
            &["log", "deploy/nothing", "-n", "shop"],
            "there is and was no deployment \"nothing\" in namespace \"shop\": deployments/shop/ has api, web",
        ),
        (&["log", "nodes/nothing"], "there is and was no node \"nothing\": the branch has deployments/"),
        (&["log", "cm/broken"], "it is damaged"),
        (&["log", "deploy"], "name one object, such as deploy/NAME"),
        (&["blame", "deploy"], "name one object, such as deploy/NAME"),
        (&["blame", "nodes/nothing"], "there is and was no node \"nothing\": the branch has deployments/"),
        (&["log", "-n", "shop"], "trishanku diff --since=10m -n shop"),
        (&["log", "ev/x"], "events are never committed"),
        (&["diff", "--since=1h", "deploy/"], "\"deploy/\" is not an object: name each as KIND/NAME"),
        (&["diff", "--since=1h", "deploy", "svc/x"], "\"deploy\" is a kind"),
        (&["diff", "--since=1h", "deploy/x", "-A"], "is in one namespace: say in which with -n"),
        (&["--heaven", "other", "log"], "there is no heaven \"other\", but desk"),
    ] {
        let said = plane.complaint(args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let nothing = plane.run(&["diff", "--since=1h", "nonsense"]);
    assert_eq!(nothing.status.code(), Some(2), "1 would mean that something differs: {nothing:?}");
    let empty = TempDir::new().expect("the temp folder is writable");
    std::fs::copy(plane.dir.path().join("gitcd"), empty.path().join("gitcd")).expect("the folder is writable");
    let said = Plane { dir: empty }.complaint(&["log"]);
    assert!(said.contains("there is no repository in "), "{said}");
}

#[test]
fn it_is_the_branch_of_the_desk_unless_another_heaven_is_named() {
    let branch = |plane: &Plane, args: &[&str]| {
        let output = plane.run(&[args, &["log"]].concat());
        let words: Vec<_> =
            String::from_utf8(output.stdout).expect("the output is UTF-8").lines().map(ToOwned::to_owned).collect();
        (Path::new(&words[2]).file_name().unwrap().to_string_lossy().into_owned(), words[3..5].join(" "))
    };
    let expected = |name: &str, metadata: &str| {
        let references = format!(
            "--data-reference-names=default=refs/heads/{name}/data --metadata-reference-names=default={metadata}"
        );
        (format!("{name}.git"), references)
    };
    let plane = Plane::new(Form::Manifests, &["merge", "kcm", "desk", "old"]);
    assert_eq!(branch(&plane, &[]), expected("desk", "refs/heads/desk/metadata"));
    assert_eq!(branch(&plane, &["--heaven", "kcm"]), expected("kcm", "refs/heads/kcm/metadata"));
    // As in records of older versions.
    assert_eq!(branch(&plane, &["--heaven", "old"]), expected("old", "refs/gitcd/metadata/old/data"));
    let plane = Plane::new(Form::Manifests, &["merge", "kcm"]);
    assert_eq!(branch(&plane, &[]), expected("kcm", "refs/heads/kcm/metadata"));
    let plane = Plane::new(Form::Central, &[]);
    repository(plane.home().dir(), "repo");
    let (folder, references) = branch(&plane, &[]);
    assert_eq!(folder, "repo.git");
    assert!(
        references.contains("default=refs/heads/main ") && references.ends_with("default=refs/gitcd/metadata/main")
    );
}
