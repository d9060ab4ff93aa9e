//! The programs that a control plane consists of.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use trishanku::plane::Assets;
use trishanku::plane::assets::{KUBERNETES, find_gitcd};

use super::check::{Area, Check};

/// How long a program may take to print its version.
const PATIENCE: Duration = Duration::from_secs(10);
/// The oldest version of Git with all that gitcd uses.
const GIT: [u64; 2] = [2, 32];
/// The version of Kubernetes for which `trishanku up` has flags.
const KUBERNETES_VERSION: [u64; 2] = [1, 36];

/// A version as a program prints it, or why it does not.
type Version = Result<String, String>;
/// A version, and its first two numbers.
type Parsed<'a> = (&'a str, [u64; 2]);
/// The folder of the Kubernetes programs, and the version of each.
type Programs<'a> = (&'a str, &'a [(&'a str, Version)]);

pub(super) async fn check(assets: Option<&Path>, gitcd: Option<&Path>) -> Vec<Check> {
    let (git, gitcd, kubernetes) = tokio::join!(version(Path::new("git"), &["--version"]), of_gitcd(gitcd), async {
        let assets = Assets::find(assets).map_err(|error| error.to_string())?;
        let versions = KUBERNETES.map(async |name| {
            let arguments: &[&str] = if name == "kubectl" { &["version", "--client"] } else { &["--version"] };
            (name, version(&assets.program(name), arguments).await)
        });
        let folder = assets.program("").display().to_string();
        Ok((folder.trim_end_matches('/').to_owned(), futures::future::join_all(versions).await))
    });
    vec![of_git(&git), gitcd, of_kubernetes(kubernetes.as_ref().map(|(folder, found)| (folder.as_str(), &found[..])))]
}

/// Returns the first line that a program prints.
async fn version(program: &Path, arguments: &[&str]) -> Version {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => Err(format!("it does not print its version within {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(output)) if !output.status.success() => Err(format!("it does not print its version: {}", output.status)),
        Ok(Ok(output)) => {
            Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
        }
    }
}

/// Returns the first version in a line, and its numbers.
fn parse(line: &str) -> Option<Parsed<'_>> {
    line.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        let numbers = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
        Some((word, numbers))
    })
}

fn of_git(found: &Version) -> Check {
    const NAME: &str = "git";
    let [major, minor] = GIT;
    let remedy = format!("install Git {major}.{minor} or later; gitcd runs it to fetch, to push and to repack");
    match found.as_ref().map(|line| (line, parse(line))) {
        Err(error) => Check::failure(Area::Machine, NAME, format!("git cannot be run: {error}"), remedy),
        Ok((_, Some((version, numbers)))) if numbers >= GIT => Check::ok(Area::Machine, NAME, version),
        Ok((_, Some((version, _)))) => Check::failure(Area::Machine, NAME, format!("{version} is too old"), remedy),
        Ok((line, None)) => Check::warning(Area::Machine, NAME, format!("no version in {line:?}"), remedy),
    }
}

async fn of_gitcd(gitcd: Option<&Path>) -> Check {
    const NAME: &str = "gitcd";
    let program = match find_gitcd(gitcd) {
        Ok(program) => program,
        Err(error) => return Check::failure(Area::Machine, NAME, error.to_string(), "install gitcd beside trishanku"),
    };
    compare_gitcd(&program.display().to_string(), &version(&program, &["version"]).await, env!("CARGO_PKG_VERSION"))
}

fn compare_gitcd(program: &str, found: &Version, own: &str) -> Check {
    const NAME: &str = "gitcd";
    let found = found.as_ref().map(|line| parse(line).map_or(line.as_str(), |(version, _)| version));
    match found {
        Err(error) => {
            let remedy = "make it executable, or name another one with --gitcd";
            Check::failure(Area::Machine, NAME, format!("{program} cannot be run: {error}"), remedy)
        }
        Ok(version) if version == own => Check::ok(Area::Machine, NAME, format!("{version}, {program}")),
        Ok(version) => {
            let detail = format!("{program} has version {version}, and trishanku has {own}");
            Check::warning(Area::Machine, NAME, detail, "install both from one release, or name a gitcd with --gitcd")
        }
    }
}

fn of_kubernetes(found: Result<Programs<'_>, &String>) -> Check {
    const NAME: &str = "kubernetes-programs";
    let [major, minor] = KUBERNETES_VERSION;
    let (folder, programs) = match found {
        Ok(found) => found,
        Err(error) => {
            return Check::failure(Area::Machine, NAME, error, "run `make assets`, or name their folder with --assets");
        }
    };
    let remedy = format!("use Kubernetes {major}.{minor}: `make assets` prints a folder for --assets");
    let broken: Vec<String> =
        programs.iter().filter_map(|(name, version)| Some(format!("{name}: {}", version.as_ref().err()?))).collect();
    if !broken.is_empty() {
        return Check::failure(Area::Machine, NAME, format!("{folder}: {}", broken.join("; ")), remedy);
    }
    let versions = programs.iter().filter_map(|(name, version)| Some((*name, parse(version.as_ref().ok()?))));
    let versions: Vec<(&str, Option<Parsed<'_>>)> = versions.collect();
    let first = versions.first().and_then(|(_, version)| *version);
    let is_expected = first.is_some_and(|(_, numbers)| numbers == KUBERNETES_VERSION);
    if is_expected && versions.iter().all(|(_, version)| *version == first) {
        return Check::ok(Area::Machine, NAME, format!("{} in {folder}", first.map_or("", |(version, _)| version)));
    }
    let listed =
        versions.iter().map(|(name, version)| format!("{name} {}", version.map_or("?", |(version, _)| version)));
    let detail = format!("{} in {folder}", listed.collect::<Vec<_>>().join(", "));
    Check::warning(Area::Machine, NAME, detail, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn git_must_be_there_and_new_enough() {
        for (found, status, part) in [
            (Ok("git version 2.39.5 (Apple Git-154)"), Status::Ok, "2.39.5"),
            (Ok("git version 3.0.windows.1"), Status::Ok, "3.0"),
            (Ok("git version 2.31.8"), Status::Failure, "2.31.8 is too old"),
            (Ok("hub"), Status::Warning, "no version in \"hub\""),
            (Err("No such file"), Status::Failure, "cannot be run: No such file"),
        ] {
            let check = of_git(&found.map(ToOwned::to_owned).map_err(ToOwned::to_owned));
            assert!(check.status == status && check.detail.contains(part), "{check:?}");
        }
    }

    #[test]
    fn gitcd_has_the_version_of_trishanku() {
        let check = |line: &str| compare_gitcd("/bin/gitcd", &Ok(line.to_owned()), "0.1.0");
        assert_eq!(check("gitcd 0.1.0 (serves etcd 3.6.16; merge rules 6)").status, Status::Ok);
        let other = check("gitcd 0.2.0 (serves etcd 3.6.16)");
        assert!(
            other.status == Status::Warning && other.detail.contains("0.2.0, and trishanku has 0.1.0"),
            "{other:?}"
        );
        assert_eq!(compare_gitcd("/bin/gitcd", &Err("x".into()), "0.1.0").status, Status::Failure);
    }

    #[test]
    fn kubernetes_programs_have_one_version_that_is_supported() {
        let check = |versions: [Result<&str, &str>; 2]| {
            let named = ["kube-apiserver", "kubectl"].into_iter().zip(versions);
            let found: Vec<(&str, Version)> =
                named.map(|(name, found)| (name, found.map(str::to_owned).map_err(str::to_owned))).collect();
            of_kubernetes(Ok(("/assets", &found)))
        };
        let good = check([Ok("Kubernetes v1.36.3"), Ok("Client Version: v1.36.3")]);
        assert_eq!((good.status, good.detail.as_str()), (Status::Ok, "v1.36.3 in /assets"));
        let mixed = check([Ok("Kubernetes v1.36.3"), Ok("Client Version: v1.35.0")]);
        assert!(mixed.status == Status::Warning && mixed.detail.contains("kubectl v1.35.0 in"), "{mixed:?}");
        assert_eq!(check([Ok("Kubernetes v1.37.0"), Ok("v1.37.0")]).status, Status::Warning);
        assert_eq!(check([Ok(""), Ok("")]).status, Status::Warning);
        let broken = check([Ok("Kubernetes v1.36.3"), Err("Permission denied")]);
        assert!(
            broken.status == Status::Failure && broken.detail.ends_with("kubectl: Permission denied"),
            "{broken:?}"
        );
        assert_eq!(of_kubernetes(Err(&"none".to_owned())).status, Status::Failure);
    }
}
