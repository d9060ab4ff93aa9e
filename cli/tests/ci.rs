//! The scripts that run the tests: every failure is named and counted, and hides no other.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn script(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, format!("#!/usr/bin/env bash\n{text}")).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs hack/test-runner.sh on a fake test binary; returns success, output and report.
fn runner(binary: &str, args: &[&str]) -> (bool, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deps/binary-0123456789abcdef");
    script(&file, binary);
    let report = folder.path().join("report");
    let output = Command::new(Path::new(CHECKOUT).join("hack/test-runner.sh"))
        .arg(&file)
        .args(args)
        .current_dir(folder.path())
        .env("TRISHANKU_TEST_REPORT", &report)
        .env("TEST_BINARY_TIMEOUT", "3s")
        .env_remove("TEST_RETRIES")
        .env_remove("TEST_CLAIMS")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), printed, std::fs::read_to_string(report).unwrap_or_default())
}

/// The lines that `hack/totals.sh` adds up.
fn results(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.strip_prefix("test result: ")).collect()
}

/// Fails in the tests `a::steady` and `a::once`; the second passes when it is repeated by name.
const FAILS: &str = r#"
case " $* " in
  *" --exact a::once "*) printf 'test a::once ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n\n'; exit ;;
  *" --exact "*) printf 'failures:\n    a::steady\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n\n'; exit 101 ;;
esac
printf 'test a::good ... ok\ntest a::once ... FAILED\n\nfailures:\n\n---- a::once stdout ----\nfailures:\n    decoy\n'
printf 'test result: ok. 70 passed; 0 failed; 0 ignored\n\nfailures:\n    a::once\n    a::steady\n\n'
printf 'test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out\n\n'
exit 101
"#;

#[test]
fn a_claimed_binary_runs_once_and_what_cannot_be_claimed_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deps/binary-0123456789abcdef");
    script(&file, "echo \"it runs${TEST_CLAIMS-}\"; exit 7");
    let run = |claims: &Path| {
        let mut command = Command::new(Path::new(CHECKOUT).join("hack/test-runner.sh"));
        let output = command.arg(&file).env("TEST_CLAIMS", claims).env_remove("TRISHANKU_TEST_REPORT").output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap().contains("it runs\n"))
    };
    assert_eq!(run(folder.path()), (Some(7), true));
    assert_eq!(run(folder.path()), (Some(0), false));
    assert_eq!(run(&folder.path().join("missing")), (Some(1), false));
}

#[test]
fn two_lanes_run_each_binary_once_and_the_second_begins_with_some() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ran = at("ran").display().to_string();
    let binary = |name: &str, text: &str| {
        script(&at(&format!("deps/{name}-0123456789abcdef")), &format!("echo {name} >>'{ran}'\n{text}\n"));
    };
    // It ends only if the other lane goes on.
    let passes = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
    binary(
        "one",
        &format!("for _ in {{1..600}}; do grep -q two '{ran}' && {passes} && exit; sleep 0.05; done\nexit 1"),
    );
    binary(
        "slow",
        "printf 'failures:\n    a::b\n\n'\necho 'test result: FAILED. 0 passed; 1 failed; 0 ignored'\nexit 3",
    );
    binary("two", passes);
    // Runs the binaries that it is asked for; without any, all.
    let cargo = r#"
[[ " $* " != *" --no-run "* ]] || exit 0
names=$(printf '%s\n' "$@" | sed -n 's/^--test=//p')
runner=$(printf '%s\n' "$@" | sed -n "s/.*runner=\['\(.*\)'\].*/\1/p")
# The second lane has begun.
for _ in {1..600}; do [[ -z $names ]] && ! grep -q slow "$RAN" 2>/dev/null || break; sleep 0.05; done
status=0
for name in ${names:-one slow two}; do
  [[ ! -e $DEPS/$name-0123456789abcdef ]] || "$runner" "$DEPS/$name-0123456789abcdef" || status=101
done
exit $status
"#;
    script(&at("cargo"), cargo);
    let mut command = Command::new(Path::new(CHECKOUT).join("hack/test.sh"));
    command.env("CARGO", at("cargo")).env("DEPS", at("deps")).env("RAN", &ran).env("TEST_FIRST", "slow none");
    // Of the run that this test is a part of.
    command.env("TEST_CLAIMS", at("deps")).env_remove("TRISHANKU_TEST_REPORT").env("TEST_RETRIES", "0");
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let ran = std::fs::read_to_string(&ran).unwrap_or_default();
    let mut ran: Vec<&str> = ran.lines().collect();
    assert_eq!(ran[0], "slow", "{printed}");
    ran.sort_unstable();
    assert_eq!(ran, ["one", "slow", "two"], "{printed}");
    assert!(
        !output.status.success() && printed.ends_with("failed: slow a::b\n4 passed, 1 failed, 0 skipped\n"),
        "{printed}"
    );
}

#[test]
fn a_test_that_passes_when_it_is_repeated_is_flaky_and_one_that_does_not_fails() {
    let (passes, printed, report) = runner(FAILS, &["--nocapture", "a::"]);
    assert!(!passes, "{printed}");
    assert_eq!(report, "flaky: binary a::once\nfailed: binary a::steady\n");
    assert_eq!(results(&printed), ["FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out"], "{printed}");
    assert!(printed.contains("\n test result: ok. 70 passed"), "{printed}");

    let (passes, printed, report) = runner(&FAILS.replace("    a::steady\\n", "").replace("2 failed", "1 failed"), &[]);
    assert!(passes, "{printed}");
    assert_eq!(report, "flaky: binary a::once\n");
    assert_eq!(results(&printed), ["ok. 2 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out"], "{printed}");
}

#[test]
fn a_binary_that_crashes_hangs_or_exits_with_an_error_is_a_failure() {
    let (passes, printed, report) = runner("echo 'test a ... ok'\nkill -ABRT $$", &[]);
    assert!(!passes, "{printed}");
    assert_eq!(report, "failed: binary (the binary exited with status 134 before its tests were done)\n");
    assert_eq!(results(&printed), ["FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"], "{printed}");

    let (passes, printed, report) =
        runner("echo 'test a ... ok'\necho 'test result: ok. 1 passed; 0 failed'\nexit 3", &[]);
    assert!(!passes, "{printed}");
    assert_eq!(report, "failed: binary (the binary exited with status 3 although no test failed)\n");
    assert_eq!(results(&printed), ["FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"], "{printed}");

    let (passes, printed, report) = runner("echo 'test a ... ok'\nexec sleep 600", &[]);
    assert!(!passes, "{printed}");
    assert_eq!(report, "failed: binary (the binary ran longer than 3s and was killed)\n");
    assert_eq!(results(&printed), ["FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"], "{printed}");
}

/// A checkout with only the scripts of CI, and a fake make.
fn checkout(make: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for file in [".ci/run", ".ci/fresh-home", "hack/totals.sh"] {
        let copy = folder.path().join(file);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(CHECKOUT).join(file), copy).unwrap();
    }
    script(&folder.path().join("hack/node.sh"), "echo 'no node here' >&2; exit 1\n");
    let programs = folder.path().join("programs");
    script(&programs.join("make"), make);
    (folder, programs)
}

fn ci(make: &str) -> (bool, String, tempfile::TempDir) {
    let (folder, programs) = checkout(make);
    let home = folder.path().join("home-of-caller");
    for file in [".cargo/registry/a", ".cache/go-build/a", ".cache/trishanku/assets/v1/etcd", ".npmrc"] {
        let file = home.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut run = Command::new(folder.path().join(".ci/run"));
    run.env("PATH", path).env("HOME", home).env("PUBLISHED_SAMPLES", "/nowhere").env("GOPATH", "/nowhere");
    for variable in ["CARGO_HOME", "CARGO_TARGET_DIR", "XDG_CACHE_HOME", "TRISHANKU_TEST_REPORT"] {
        run.env_remove(variable);
    }
    let output = run.output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap(), folder)
}

#[test]
fn ci_runs_all_steps_and_says_at_the_end_what_failed() {
    let (passes, printed, _folder) = ci(r#"
case $1 in
  test)
    echo 'flaky: one a' >>"$TRISHANKU_TEST_REPORT"
    echo 'failed: two b' >>"$TRISHANKU_TEST_REPORT"
    echo 'test result: ok. 5 passed; 0 failed; 1 ignored'
    echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'
    exit 2
    ;;
  check) echo 'error: could not compile' >&2; exit 2 ;;
  suites) echo 'test result: FAILED. 10 passed; 2 failed; 0 ignored'; exit 1 ;;
  linearizability) echo 'test result: ok. 7 passed; 0 failed; 0 ignored' ;;
esac
"#);
    assert!(!passes, "{printed}");
    for step in ["test", "check", "schema ARGS=--check", "suites", "etcd-suites", "linearizability", "check-features"] {
        assert!(printed.contains(&format!("\n=== make {step} (")), "{step} is not in\n{printed}");
    }
    assert!(printed.contains("make test-cluster: not run. no node here"), "{printed}");
    let end = "\nflaky: one a\nfailed: two b\nfailed: make suites (status 1): see its output\n\
               failed: step make check (status 2)\n25 passed, 4 failed, 1 skipped\nCI took ";
    assert!(printed.contains(end), "{printed}");
}

#[test]
fn ci_runs_with_the_home_of_a_machine_that_has_just_been_installed() {
    let (passes, printed, folder) = ci(r#"
[ "$1" = test ] || exit 0
echo "home: $(cd "$HOME" && find . -type f -o -type l | sort | xargs)"
echo "assets: $(ls "$HOME"/.cache/trishanku/assets/*)"
echo "cargo: $(ls "$CARGO_HOME"); go: ${GOPATH-none} ${XDG_CACHE_HOME-none}"
mkdir -p "$HOME/go/pkg/mod" && touch "$HOME/go/pkg/mod/file" && chmod -R a-w "$HOME/go"
"#);
    assert!(passes, "{printed}");
    for line in ["home: ./.cache/trishanku/assets", "assets: etcd", "cargo: ; go: none none"] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in\n{printed}");
    }
    assert!(printed.contains("\n0 passed, 0 failed, 0 skipped\n"), "{printed}");
    let left: Vec<_> = std::fs::read_dir(folder.path().join("target")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
