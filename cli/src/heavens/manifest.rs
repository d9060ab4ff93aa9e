//! Reads manifests from several files into one set of objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trishanku_api::{AutomatedMergeSpec, GROUP, TrishankuHeavenSpec, VERSION};

use super::check;

/// Keys and values of a Secret or a `ConfigMap`.
pub type Data = BTreeMap<String, Vec<u8>>;

/// The objects of the manifests that are used.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Heavens, in the order of the files.
    pub heavens: Vec<(String, TrishankuHeavenSpec)>,
    /// Merges, in the order of the files.
    pub merges: Vec<(String, AutomatedMergeSpec)>,
    /// Secrets.
    pub secrets: BTreeMap<String, Data>,
    /// `ConfigMap`s.
    pub config_maps: BTreeMap<String, Data>,
    /// Objects that are not used.
    pub ignored: Vec<Ignored>,
}

/// An object that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What to do instead; may be empty.
    pub remedy: &'static str,
}

/// Why manifests cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A file cannot be read.
    #[error("cannot read {file:?}")]
    Read {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is not YAML.
    #[error("{file:?} is not YAML: {reason}")]
    Yaml {
        /// The file.
        file: PathBuf,
        /// The error of the parser, with its position.
        reason: String,
    },
    /// An object is invalid for its kind.
    #[error("{file:?}: {object}: {reason}")]
    Object {
        /// The file.
        file: PathBuf,
        /// Its kind and name.
        object: String,
        /// What is wrong.
        reason: String,
    },
    /// The only heavens in the files are of a kind of another project.
    #[error("{kind} {name:?} {OTHER_HEAVEN}")]
    OtherHeaven {
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The files contain neither a heaven nor a merge.
    #[error("there is no TrishankuHeaven and no AutomatedMerge in {0:?}: name a file that has one, with --filename")]
    Nothing(Vec<PathBuf>),
}

/// What to do about a kind of heavens that another program defines. All of them have the field `spec.gitcd`.
const OTHER_HEAVEN: &str =
    "is not a kind that trishanku run supports; apply it with kubectl to a cluster that runs its controller";

/// The kinds that are used.
const USED: [&str; 4] = ["TrishankuHeaven", "AutomatedMerge", "Secret", "ConfigMap"];

/// One object, and the last file with a document for it.
struct Object {
    file: PathBuf,
    kind: String,
    name: String,
    value: Value,
}

impl Manifests {
    /// Reads files in order. A later document of the same kind and name is applied to the earlier one as a merge patch
    /// ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386)): `null` removes a field, and a list replaces the whole list.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn read(files: &[PathBuf]) -> Result<Self, ManifestError> {
        let mut objects = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|source| ManifestError::Read { file: file.clone(), source })?;
            add(&mut objects, file, &text)?;
        }
        let manifests = Self::of(objects)?;
        if manifests.heavens.is_empty() && manifests.merges.is_empty() {
            if let Some(Ignored { kind, name, .. }) =
                manifests.ignored.iter().find(|found| found.remedy == OTHER_HEAVEN)
            {
                return Err(ManifestError::OtherHeaven { kind: kind.clone(), name: name.clone() });
            }
            return Err(ManifestError::Nothing(files.to_vec()));
        }
        Ok(manifests)
    }

    fn of(objects: Vec<Object>) -> Result<Self, ManifestError> {
        let mut read = Self::default();
        let mut namespace: Option<String> = None;
        for object in objects {
            if let Some(own) = object.value["metadata"]["namespace"].as_str() {
                let first = namespace.get_or_insert_with(|| own.to_owned());
                if first != own {
                    let reason = format!(
                        "it is in namespace {own:?}, but others are in {first:?}: run the objects of one namespace at a time"
                    );
                    return Err(object.wrong(reason));
                }
            }
            match object.kind.as_str() {
                "TrishankuHeaven" => read.heavens.push((object.name.clone(), object.spec()?)),
                "AutomatedMerge" => read.merges.push((object.name.clone(), object.spec()?)),
                "Secret" => {
                    let data = object.data("data", true)?.into_iter().chain(object.data("stringData", false)?);
                    read.secrets.insert(object.name.clone(), data.collect());
                }
                "ConfigMap" => {
                    let data = object.data("data", false)?.into_iter().chain(object.data("binaryData", true)?);
                    read.config_maps.insert(object.name.clone(), data.collect());
                }
                "GitHubRepository" => {
                    read.ignore(&object, "give --remote-url=URL=FOLDER to use a local repository instead");
                }
                _ if object.value["spec"]["gitcd"].is_object() => read.ignore(&object, OTHER_HEAVEN),
                _ => read.ignore(&object, "apply it with kubectl to the control plane where it belongs"),
            }
        }
        Ok(read)
    }

    fn ignore(&mut self, object: &Object, remedy: &'static str) {
        self.ignored.push(Ignored { kind: object.kind.clone(), name: object.name.clone(), remedy });
    }
}

impl Object {
    fn wrong(&self, reason: impl Into<String>) -> ManifestError {
        let object = format!("{} {:?}", self.kind, self.name);
        ManifestError::Object { file: self.file.clone(), object, reason: reason.into() }
    }

    fn spec<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        let version = self.value["apiVersion"].as_str().unwrap_or_default();
        let expected = format!("{GROUP}/{VERSION}");
        if version != expected {
            return Err(self.wrong(format!("its apiVersion is {version:?}, not {expected:?}")));
        }
        serde_json::from_value(self.value["spec"].clone()).map_err(|error| self.wrong(format!("spec: {error}")))
    }

    fn data(&self, field: &str, is_base64: bool) -> Result<Data, ManifestError> {
        let Some(entries) = self.value[field].as_object() else { return Ok(Data::new()) };
        let value = |(key, value): (&String, &Value)| {
            check::key(field, key).map_err(|reason| self.wrong(reason))?;
            // The message does not repeat the value: it may be a secret.
            let text = value.as_str().ok_or_else(|| self.wrong(format!("{field}.{key} is not a string")))?;
            let bytes = if is_base64 {
                let packed: String = text.split_ascii_whitespace().collect();
                BASE64_STANDARD.decode(packed).map_err(|_| self.wrong(format!("{field}.{key} is not base64")))?
            } else {
                text.as_bytes().to_vec()
            };
            Ok((key.clone(), bytes))
        };
        entries.iter().map(value).collect()
    }
}

fn add(objects: &mut Vec<Object>, file: &Path, text: &str) -> Result<(), ManifestError> {
    // Parses numbers as Kubernetes does. Error messages do not repeat the text: it may be a secret.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let documents = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    for value in documents.map_err(|error| ManifestError::Yaml { file: file.into(), reason: error.to_string() })? {
        // Empty documents, between separators or at the end.
        if !value.is_null() {
            add_one(objects, file, value)?;
        }
    }
    Ok(())
}

fn add_one(objects: &mut Vec<Object>, file: &Path, value: Value) -> Result<(), ManifestError> {
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "List" {
        let items = value["items"].as_array().cloned().unwrap_or_default();
        return items.into_iter().try_for_each(|item| add_one(objects, file, item));
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let object = Object { file: file.into(), kind, name, value };
    if object.kind.is_empty() || object.name.is_empty() {
        return Err(object.wrong("a manifest needs a kind and a metadata.name"));
    }
    // Objects that are not used may have other names, such as a role `system:…`.
    if USED.contains(&object.kind.as_str()) {
        check::subdomain("metadata.name", &object.name).map_err(|reason| object.wrong(reason))?;
        match &object.value["metadata"]["namespace"] {
            Value::Null => {}
            Value::String(own) => {
                check::label("metadata.namespace", own).map_err(|reason| object.wrong(reason))?;
            }
            _ => return Err(object.wrong("metadata.namespace is not a string")),
        }
    }
    match objects.iter_mut().find(|earlier| earlier.kind == object.kind && earlier.name == object.name) {
        Some(earlier) => {
            patch(&mut earlier.value, object.value);
            earlier.file = object.file;
        }
        None => objects.push(object),
    }
    Ok(())
}

/// Applies a merge patch (RFC 7386).
fn patch(target: &mut Value, change: Value) {
    let Value::Object(changes) = change else {
        *target = change;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let fields = target.as_object_mut().expect("it was just replaced with an object");
    for (name, change) in changes {
        if change.is_null() {
            fields.shift_remove(&name);
        } else {
            patch(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAVEN: &str = "apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1\nkind: TrishankuHeaven\n";

    fn read(texts: &[&str]) -> Result<Manifests, ManifestError> {
        let dir = tempfile::tempdir().unwrap();
        let file = |(at, text): (usize, &&str)| {
            let path = dir.path().join(format!("{at}.yaml"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Manifests::read(&texts.iter().enumerate().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn a_later_document_changes_an_earlier_one() {
        let first = format!(
            "{HEAVEN}metadata: {{name: a}}\nspec:\n  skip: {{app: true, entrypoints: true}}\n---\n\
             kind: ConfigMap\nmetadata: {{name: c}}\ndata: {{x: one, y: two}}\n---\n"
        );
        let second = format!(
            "{HEAVEN}metadata: {{name: a}}\nspec: {{skip: {{entrypoints: null}}}}\n---\n\
             kind: ConfigMap\nmetadata: {{name: c}}\ndata: {{y: three}}\n"
        );
        let read = read(&[&first, &second]).unwrap();
        let skip = read.heavens[0].1.skip.clone().unwrap();
        assert_eq!((read.heavens.len(), skip.app, skip.entrypoints), (1, Some(true), None));
        let map = &read.config_maps["c"];
        assert_eq!((&map["x"][..], &map["y"][..]), (&b"one"[..], &b"three"[..]));
    }

    #[test]
    fn secrets_are_read_and_others_are_ignored_with_what_to_do_instead() {
        let text = format!(
            "kind: List\nitems:\n- {{kind: Secret, metadata: {{name: s}}, data: {{a: YQ==}}, stringData: {{b: b}}}}\n\
             - {{kind: GitHubRepository, metadata: {{name: g}}}}\n---\n{HEAVEN}metadata: {{name: a}}\nspec: {{}}\n"
        );
        let read = read(&[&text]).unwrap();
        assert_eq!(read.secrets["s"], Data::from([("a".into(), b"a".to_vec()), ("b".into(), b"b".to_vec())]));
        assert!(read.ignored[0].name == "g" && read.ignored[0].remedy.contains("--remote-url"));
    }

    #[test]
    fn a_heaven_of_another_kind_is_reported_with_the_kind() {
        let other = "apiVersion: example.org/v1\nkind: Fleet\nmetadata: {name: f}\nspec: {gitcd: {}}\n";
        let ours = format!("{HEAVEN}metadata: {{name: a}}\nspec: {{}}\n");
        let [ignored] = &self::read(&[&format!("{other}---\n{ours}")]).unwrap().ignored[..] else { panic!() };
        assert!(
            ignored.kind == "Fleet" && ignored.remedy.contains("a cluster that runs its controller"),
            "{ignored:?}"
        );
        let said = self::read(&[other]).unwrap_err().to_string();
        assert!(said.contains("Fleet \"f\"") && said.contains("is not a kind that trishanku run supports"), "{said}");
    }

    #[test]
    fn what_is_wrong_is_named_without_what_is_secret() {
        let heaven = format!("{HEAVEN}metadata: {{name: a}}\nspec: {{}}\n");
        for (text, expected) in [
            ("a: [".to_owned(), "is not YAML"),
            ("kind: ConfigMap\nmetadata: {name: a}\n".to_owned(), "no TrishankuHeaven"),
            ("kind: Secret\nmetadata: {name: s}\ndata: {k: hush-hush}\n".to_owned(), "\"s\": data.k is not base64"),
            ("metadata: {name: s}\n".to_owned(), "needs a kind"),
            ("kind: Secret\nmetadata: {name: ../s}\n".to_owned(), "metadata.name \"../s\" is not a DNS subdomain"),
            ("kind: Secret\nmetadata: {name: s, namespace: ../n}\n".to_owned(), "metadata.namespace \"../n\" is no"),
            ("kind: ConfigMap\nmetadata: {name: s}\ndata: {..: x}\n".to_owned(), "does not begin with '..'"),
            ("kind: Secret\nmetadata: {name: s}\nstringData: {a/b: x}\n".to_owned(), "and is not \"a/b\""),
            (HEAVEN.replace("v1alpha1", "v9") + "metadata: {name: a}\n", "not \"controllers."),
            (format!("{HEAVEN}metadata: {{name: a}}\nspec: {{app: 7}}\n"), "\"a\": spec: "),
            (
                format!(
                    "{heaven}---\n{HEAVEN}metadata: {{name: b, namespace: x}}\nspec: {{}}\n---\nkind: Secret\nmetadata: {{name: s, namespace: z}}\n"
                ),
                "one namespace at a time",
            ),
        ] {
            let said = read(&[&text]).unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains("hush"), "{said}");
        }
    }
}
