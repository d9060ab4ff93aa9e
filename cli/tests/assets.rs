//! `hack/assets.sh`, which finds the programs for `make up` and the tests.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_folder_that_lacks_programs_is_passed_over_with_their_names_and_a_remedy() {
    let complete = tempfile::tempdir().unwrap();
    let etcd = complete.path().join("etcd");
    std::fs::write(&etcd, "").unwrap();
    std::fs::set_permissions(&etcd, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/assets.sh");
    let found = Command::new(script)
        .arg("etcd")
        .env("TRISHANKU_ASSETS", "/nowhere")
        .env("KUBEBUILDER_ASSETS", complete.path())
        .output()
        .unwrap();
    let said = String::from_utf8(found.stderr).unwrap();
    assert!(found.status.success(), "{said}");
    assert_eq!(String::from_utf8(found.stdout).unwrap().trim_end(), complete.path().to_str().unwrap());
    assert!(said.contains("$TRISHANKU_ASSETS (/nowhere) is not used, it lacks: etcd\n"), "{said}");
    assert!(said.contains("unset TRISHANKU_ASSETS, or set it to a folder that has them"), "{said}");
}
