//! `run` and `up` while a control plane runs.

mod sandbox;

use self::sandbox::{Sandbox, printed};

/// A merge, which needs only a gitcd.
fn merge(committer: &str) -> String {
    format!(
        "apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: AutomatedMerge
metadata: {{name: all}}
spec:
  app: {{committerName: {committer}}}
  gitcd: {{git: {{branches: {{data: all/data}}, remotes: [{{name: one, repo: /nowhere.git, branches: {{data: one/data}}}}]}}}}
"
    )
}

#[test]
fn other_manifests_than_those_that_run_are_refused() {
    let sandbox = Sandbox::with_gitcd("exec sleep 600");
    let (file, other) = (sandbox.write("a.yaml", &merge("me")), sandbox.write("b.yaml", &merge("you")));
    let up = sandbox.trishanku(&["run", "--detach", "-f", &file]);
    assert!(up.status.success(), "{}", printed(&up));
    let refused = "error: already running other manifests; nothing changed. Run \"";
    let same = sandbox.trishanku(&["run", "--detach", "-f", &file]);
    assert!(same.status.success() && printed(&same).contains("Already running"), "{}", printed(&same));
    for args in [
        &["run", "--detach", "-f", &other][..],
        &["run", "-f", &other],
        &["run", "--detach", "-f", &file, "-f", &other],
        &["run", "--detach", "-f", &file, "--drop-flag=gitcd=--x"],
    ] {
        let output = sandbox.trishanku(args);
        let said = printed(&output);
        assert!(
            output.status.code() == Some(1) && said.contains(refused) && said.contains("down\" first."),
            "{args:?}: {said}"
        );
    }
    // A file that was changed since.
    sandbox.write("a.yaml", &merge("them"));
    let output = sandbox.trishanku(&["run", "--detach", "-f", &file]);
    assert!(output.status.code() == Some(1) && printed(&output).contains(refused), "{}", printed(&output));
    // Another form.
    for args in [&["up", "--detach"][..], &["up", "--detach", "--central"], &["up", "--detach", "--topology=mesh"]] {
        let output = sandbox.trishanku(args);
        let said = printed(&output);
        assert!(output.status.code() == Some(1) && said.contains("is the heavens of files"), "{args:?}: {said}");
    }
    let down = sandbox.trishanku(&["down"]);
    assert_eq!(printed(&down), "Stopped; the data stays\n");
}
