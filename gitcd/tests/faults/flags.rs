//! Flags, environment variables and the configuration file: what they name, and how bad values are reported.

use std::path::Path;
use std::process::{Command, Output};

use super::explains;
use crate::support::build::{get, put};
use crate::support::{DATA, Kind, Launch, Repository};

/// Runs `gitcd` until it exits, with these environment variables; returns whether it succeeded, and its output.
fn gitcd(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("gitcd can be started");
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn file(folder: &Path, content: &str) -> String {
    let path = folder.join("gitcd.yaml");
    std::fs::write(&path, content).expect("the temporary folder is writable");
    path.display().to_string()
}

#[tokio::test]
async fn a_branch_that_is_named_is_served_alone() {
    // On the default references, on references of its own name, and named by its listen address alone.
    let by_flags =
        ["--data-reference-names=mine=refs/heads/main", "--metadata-reference-names=mine=refs/gitcd/metadata/main"];
    for (init, serve, data) in [
        (&by_flags[..], &by_flags[..], DATA),
        (&["--data-reference-names=mine=refs/heads/mine"], &[], "refs/heads/mine"),
    ] {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let path = folder.path().join("repo.git");
        let repo = format!("--repo={}", path.display());
        let (ok, words) = gitcd(&[&["init", &repo], init].concat(), &[]);
        assert!(ok, "{words}");
        assert_eq!(words.matches("created").count(), 1, "exactly one branch: {words}");

        let port = crate::support::free_port();
        let mut launch = Launch::new(Kind::Gitcd)
            .folder(folder.path())
            .port(port)
            .without("--key-prefixes")
            .argument(format!("--listen-urls=mine=http://127.0.0.1:{port}"));
        for argument in serve {
            launch = launch.argument(*argument);
        }
        let mut server = launch.start().await;
        let client = server.client().await;
        client.put(put("/a", "1")).await.ok();
        assert_eq!(client.range(get("/a")).await.ok().count, 1);
        server.terminate().await;
        let repository = Repository::at(&path);
        assert_eq!(repository.files(data).keys().collect::<Vec<_>>(), ["a"]);
        let references = repository.git(&["for-each-ref", "--format=%(refname)"]);
        assert_eq!(references.lines().count(), 2, "references of another branch: {references}");
        assert!(path.join("gitcd/mine/journal").is_dir() && !path.join("gitcd/default").exists());
    }
}

#[tokio::test]
async fn the_command_that_a_missing_branch_is_made_with_makes_it() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    // A path that a shell splits unless it is quoted.
    let folder = folder.path().join("a folder");
    std::fs::create_dir(&folder).expect("the temporary folder is writable");
    let launch = || {
        Launch::new(Kind::Gitcd)
            .folder(&folder)
            .argument("--data-reference-names=mine=refs/heads/here")
            .argument("--metadata-reference-names=mine=refs/gitcd/there")
            .argument("--key-prefixes=mine=/registry")
            .argument("--ephemeral-prefixes=mine=/registry/events:/registry/leases/*")
            .argument("--listen-urls=mine=http://127.0.0.1:0")
    };
    let exit = launch().spawn().exit().await;
    explains(&exit, &["has no branch refs/heads/here", "`gitcd init "]);
    let command = exit.output.rsplit('`').nth(1).expect("the hint is in backticks");
    let program = Path::new(env!("CARGO_BIN_EXE_gitcd")).parent().expect("an executable has a parent folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let made = Command::new("sh").args(["-c", command]).env("PATH", path).output().expect("sh can be started");
    assert!(made.status.success(), "{command}: {made:?}");
    let repository = Repository::at(&folder.join("repo.git"));
    repository.reference("refs/heads/here");
    repository.reference("refs/gitcd/there");

    let server = launch().spawn();
    crate::support::eventually("the listener", async || server.output().contains("serving").then_some(())).await;
}

#[test]
fn a_bad_value_is_shown_with_where_it_came_from() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repo = format!("--repo={}", folder.path().join("repo.git").display());
    for (flag, value, words) in [
        ("listen-urls", "ftp://127.0.0.1:1", "scheme"),
        ("key-prefixes", "a b=/", "a b"),
        ("cluster-ids", "default=x", "invalid digit"),
        ("verbosity", "x", "invalid digit"),
        ("max-txn-ops", "-1", "invalid digit"),
        ("max-request-bytes", "18446744073709551615", "1073741824"),
        ("commit-granularity", "sometimes", "sometimes"),
        ("debug", "perhaps", "perhaps"),
    ] {
        let variable = format!("GITCD_{}", flag.to_uppercase().replace('-', "_"));
        let (ok, said) = gitcd(&["serve", &repo], &[(&variable, value)]);
        assert!(!ok && said.contains(&variable) && said.contains(words), "{variable}: {said}");

        let path = file(folder.path(), &format!("{flag}: \"{value}\"\n"));
        let (ok, said) = gitcd(&["serve", &repo, &format!("--config={path}")], &[]);
        let complete = [&path, flag, words].iter().all(|word| said.contains(*word));
        assert!(!ok && complete && !said.contains("panicked"), "{flag} in a file: {said}");

        // A flag on the command line wins, and its error names no other source.
        if flag == "debug" {
            continue;
        }
        let argument = format!("--{flag}={value}");
        let (ok, said) =
            gitcd(&["serve", &repo, &argument, &format!("--config={}", file(folder.path(), ""))], &[(&variable, "1")]);
        assert!(
            !ok && said.contains(words) && !said.contains("GITCD_") && !said.contains("yaml"),
            "{argument}: {said}"
        );
    }
}

#[test]
fn an_unknown_flag_in_a_file_is_named() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    for content in ["no-such-flag: 1\n", "config: other.yaml\n", "listen-urls:\n"] {
        let path = file(folder.path(), content);
        let (ok, said) = gitcd(&["serve", "--config", &path], &[]);
        let flag = content.split(':').next().unwrap_or_default();
        assert!(!ok && said.contains(&path) && said.contains(flag), "{content}: {said}");
    }
}

#[test]
fn one_file_has_the_flags_of_all_commands() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let (repo, none) = (folder.path().join("repo.git"), folder.path().join("none.pem"));
    let tls = ["cacert", "cert", "key"].map(|flag| format!("{flag}: {}\n", none.display())).concat();
    let text =
        format!("repo: {}\nlisten-urls: http://127.0.0.1:0\nendpoint: https://127.0.0.1:1\n{tls}", repo.display());
    let config = format!("--config={}", file(folder.path(), &text));
    let (ok, said) = gitcd(&["init", &config], &[]);
    assert!(ok && said.contains("created"), "{said}");
    // `key` is a flag of `status`, and an argument of `log`.
    let (ok, said) = gitcd(&["log", &config], &[]);
    assert!(ok && !said.contains("none.pem"), "{said}");
    let (ok, said) = gitcd(&["status", &config], &[]);
    assert!(!ok && said.contains("none.pem") && !said.contains("panicked"), "{said}");
}

#[test]
fn switches_are_understood_in_the_usual_words() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    for word in ["1", "true", "yes", "on", "TRUE", "0", "false", "no", "off", ""] {
        let (ok, said) = gitcd(&["version"], &[("GITCD_DEBUG", word)]);
        assert!(ok, "GITCD_DEBUG={word}: {said}");
    }
    // `force` creates the branch again; without it, `init` leaves an existing branch alone.
    let repo = format!("--repo={}", folder.path().join("repo.git").display());
    assert!(gitcd(&["init", &repo], &[]).0);
    for (word, anew) in [("0", false), ("no", false), ("", false), ("1", true), ("yes", true)] {
        let (ok, said) = gitcd(&["init", &repo], &[("GITCD_FORCE", word)]);
        assert!(ok && said.contains("already exists") != anew, "GITCD_FORCE={word}: {said}");
        let path = file(folder.path(), &format!("force: {}\n", if word.is_empty() { "false" } else { word }));
        let (ok, said) = gitcd(&["init", &repo, "--config", &path], &[]);
        assert!(ok && said.contains("already exists") != anew, "force: {word}: {said}");
    }
}

#[test]
fn help_says_each_default_once() {
    for command in ["init", "serve"] {
        let (ok, help) = gitcd(&[command, "--help"], &[]);
        assert!(ok && !help.contains("[default: ]") && !help.contains("[default: \"\"]"), "{help}");
        for flag in help.split("\n      --").skip(1) {
            assert!(flag.matches("[default: ").count() <= 1, "--{flag}");
        }
    }
}

#[test]
fn listeners_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repo = format!("--repo={}", folder.path().join("repo.git").display());
    for (arguments, word) in [
        (&["--listen-urls=https://127.0.0.1:0"][..], "--tls-cert"),
        (&["--listen-urls=https://127.0.0.1:0", "--tls-cert=a.pem"], "--tls-key"),
        (&["--tls-trusted-ca-certs=a.pem"], "--tls-cert"),
        (&["--listen-urls=default="], "--listen-urls"),
        (&["--listen-urls=http://127.0.0.1:0,http://127.0.0.1:0"], "separated by ';'"),
        (&["--host-listen-urls=http://127.0.0.1:0,http://127.0.0.1:0"], "separated by ';'"),
        (&["--host-listen-urls=ftp://127.0.0.1:0"], "--host-listen-urls"),
        (&["--host-listen-urls=http://0.0.0.0:0"], "--host-tokens"),
        (&["--host-listen-urls=https://127.0.0.1:0", "--host-anonymous=read"], "--host-tls-cert"),
        (
            &["--host-listen-urls=https://127.0.0.1:0", "--host-tls-cert=a.pem", "--host-anonymous=read"],
            "--host-tls-key",
        ),
        (&["--key-prefixes=a=/,b=/"], "--listen-urls"),
        (&["--key-prefixes=a=/", "--listen-urls=b=http://127.0.0.1:0"], "--listen-urls"),
        (&["--data-reference-names=a=refs/heads/main,default=refs/heads/main"], "--data-reference-names"),
    ] {
        let (ok, said) = gitcd(&[&["serve", &repo], arguments].concat(), &[]);
        assert!(!ok && said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_no_repository_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let (file, other) = (folder.path().join("file"), folder.path().join("other"));
    std::fs::write(&file, "").expect("the temporary folder is writable");
    std::fs::create_dir(&other).expect("the temporary folder is writable");
    std::fs::write(other.join("notes"), "mine").expect("the temporary folder is writable");
    for command in
        [&["init"][..], &["serve"], &["pull", "--remote-names=up"], &["graph"], &["serve", "--writer-lease=3s"]]
    {
        for (path, words) in [(&file, "it is a file; --repo takes the folder"), (&other, "it has something else in it")]
        {
            let repo = format!("--repo={}", path.display());
            let (ok, said) = gitcd(&[command, &[&repo]].concat(), &[]);
            let is_plain = !said.contains("class=") && said.matches(words).count() == 1;
            assert!(!ok && is_plain && said.contains(&path.display().to_string()), "{command:?}: {said}");
        }
    }
    assert_eq!(std::fs::read(&file).expect("still a file"), b"");
    assert_eq!(other.read_dir().expect("still a folder").count(), 1);
    let (ok, said) = gitcd(&["merge-file", "--install", &format!("--repo={}", file.display())], &[]);
    assert!(!ok && said.contains("name a clone with --repo") && !said.contains("class="), "{said}");
}

#[tokio::test]
async fn log_lines_are_json_objects_if_wanted() {
    // etcd's name for text is `console`.
    for (format, is_json) in [("json", true), ("text", false), ("console", false)] {
        let server = Launch::new(Kind::Gitcd).argument(format!("--log-format={format}")).start().await;
        let logged = async || server.output().contains("serving").then(|| server.output());
        let output = crate::support::eventually("the log", logged).await;
        let line = output.lines().find(|line| line.contains("serving")).expect("it is there");
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else {
            assert!(!is_json, "{line}");
            continue;
        };
        assert!(is_json, "{line}");
        for field in ["time", "level", "message", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
        assert_eq!(line["level"], "INFO");
    }
    let (_, output) = gitcd(&["status", "--log-format=xml"], &[]);
    assert!(output.contains("text, json"), "{output}");
}
