//! Programs of this machine that run in place of images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use super::manifest::ManifestError;
use crate::plane::Assets;

/// Programs by image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePrograms {
    entries: BTreeMap<String, Entry>,
}

/// The program for an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The program, or a folder with the program that the container names.
    pub program: PathBuf,
    /// Arguments that are added unless the container has the same flag; `$(PORT)` is an allocated port.
    #[serde(default)]
    pub args: Vec<String>,
    /// Readiness probe, unless the container has one.
    #[serde(default)]
    pub health: Option<Health>,
}

/// Path of the readiness probe, on the container's own port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// Over plain HTTP.
    Http(String),
    /// Over TLS, with any certificate.
    Https(String),
}

/// An entry of a file: only a program, or all fields.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Program(PathBuf),
    Entry(Entry),
}

/// `IMAGE=PATH` on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    image: String,
    program: PathBuf,
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((image, program)) if !image.is_empty() && !program.is_empty() => {
                Ok(Self { image: image.to_owned(), program: program.into() })
            }
            _ => Err("expected IMAGE=PATH, such as registry.k8s.io/kube-scheduler=/usr/bin/kube-scheduler".to_owned()),
        }
    }
}

/// Kubernetes' own controllers, which run beside kube-apiserver. They listen on their own ports.
const KUBERNETES: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "cloud-controller-manager"];

impl ImagePrograms {
    /// Reads a file (a map from images to programs); command-line options win over it.
    ///
    /// # Errors
    /// If the file cannot be read, or is not such a map.
    pub fn read(file: Option<&Path>, given: &[Mapping]) -> Result<Self, ManifestError> {
        let mut entries = BTreeMap::new();
        if let Some(file) = file {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|source| ManifestError::Read { file: file.into(), source })?;
            let written: BTreeMap<String, Written> = serde_saphyr::from_str(&text).map_err(|error| {
                let reason = format!("{error} (expected a line `IMAGE: PROGRAM` for each image)");
                ManifestError::Yaml { file: file.into(), reason }
            })?;
            entries.extend(written.into_iter().map(|(image, written)| match written {
                Written::Program(program) => (image, Entry { program, ..Entry::default() }),
                Written::Entry(entry) => (image, entry),
            }));
        }
        for Mapping { image, program } in given {
            entries.entry(image.clone()).or_insert_with(Entry::default).program.clone_from(program);
        }
        Ok(Self { entries })
    }

    /// Returns the explicit entry for an image. Its key is the image, its repository without tag and digest, or the end
    /// of that after a slash. The longest key wins.
    pub fn given(&self, image: &str) -> Option<&Entry> {
        let repository = repository(image);
        let fits = |key: &str| {
            let is_end = repository.strip_suffix(key).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
            key == image || is_end
        };
        let found = self.entries.iter().filter(|(key, _)| fits(key)).max_by_key(|(key, _)| key.len());
        found.map(|(_, entry)| entry)
    }

    /// Returns the program for an image; `None` if it is neither given nor built in.
    pub fn find(&self, image: &str, assets: &Assets) -> Option<Entry> {
        let given = self.given(image).cloned();
        let name = repository(image).rsplit('/').next().unwrap_or_default();
        let known = KUBERNETES.contains(&name).then(|| Entry {
            program: assets.program(name),
            args: vec!["--secure-port=$(PORT)".to_owned(), "--bind-address=127.0.0.1".to_owned()],
            health: Some(Health::Https("/healthz".to_owned())),
        });
        // This program, which heavens run, too.
        let ours = || (name == "trishanku").then(std::env::current_exe).and_then(Result::ok);
        let known = known.or_else(|| ours().map(|program| Entry { program, ..Entry::default() }));
        match (given, known) {
            (Some(given), Some(known)) => {
                let args = if given.args.is_empty() { known.args } else { given.args };
                Some(Entry { program: given.program, args, health: given.health.or(known.health) })
            }
            (given, known) => given.or(known),
        }
    }
}

/// Whether the image is a pause container, which needs no process.
pub(super) fn is_pause(image: &str) -> bool {
    repository(image).rsplit('/').next() == Some("pause")
}

/// The image without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        // A colon before the last slash belongs to the registry's port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(given: &[&str]) -> ImagePrograms {
        ImagePrograms::read(None, &given.iter().map(|one| one.parse().unwrap()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_longest_entry_for_an_image_counts() {
        let programs = programs(&["app=/a", "r:5000/x/app=/b", "r:5000/x/app:v2=/c", "pp=/d"]);
        let program = |image: &str| programs.given(image).map(|entry| entry.program.display().to_string());
        for (image, expected) in [
            ("app", Some("/a")),
            ("app:v1", Some("/a")),
            ("z/app@sha256:00", Some("/a")),
            ("r:5000/x/app:v1", Some("/b")),
            ("r:5000/x/app", Some("/b")),
            ("r:5000/x/app:v2", Some("/c")),
            ("z/other:v1", None),
        ] {
            assert_eq!(program(image).as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn a_file_says_more_and_the_command_line_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("images.yaml");
        std::fs::write(&file, "a: /a\nb: {program: /b, args: [--port=$(PORT)], health: {http: /ok}}\n").unwrap();
        let programs = ImagePrograms::read(Some(&file), &["b=/c".parse().unwrap()]).unwrap();
        assert_eq!(programs.given("a:1").unwrap().program, Path::new("/a"));
        let b = programs.given("b:1").unwrap();
        assert_eq!((&*b.program, &b.args[0][..]), (Path::new("/c"), "--port=$(PORT)"));
        assert_eq!(b.health, Some(Health::Http("/ok".to_owned())));
        std::fs::write(&file, "a: {programme: /a}\n").unwrap();
        let said = ImagePrograms::read(Some(&file), &[]).unwrap_err().to_string();
        assert!(said.contains("IMAGE: PROGRAM") && said.contains("images.yaml"), "{said}");
    }

    #[test]
    fn mappings_are_checked() {
        assert!("a".parse::<Mapping>().unwrap_err().contains("IMAGE=PATH"));
        assert!("=a".parse::<Mapping>().is_err() && "a=".parse::<Mapping>().is_err());
        assert!(is_pause("registry.k8s.io/pause:3.10") && !is_pause("x/paused"));
    }
}
