//! Finds the files to check.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gitcd::merge::schema::Schemas;

/// A file to check.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// Its path in a branch, if it is a file of one.
    pub(super) key: Option<String>,
}

impl File {
    pub(super) fn read(&self) -> anyhow::Result<String> {
        if self.path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            return Ok(text);
        }
        let bytes = std::fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        // A value that is not text was encoded by kube-apiserver.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Finds the given file, or the manifests of a folder by name. Subfolders follow if `recursive` is set or the folder is a
/// checkout of a branch.
pub(super) fn find(schemas: &Schemas, path: &Path, recursive: bool, found: &mut Vec<File>) -> anyhow::Result<()> {
    if !path.is_dir() {
        // The last parts of its path may be a path in a branch.
        let whole = std::path::absolute(path).unwrap_or_default();
        let names: Vec<_> = whole.iter().map(|name| name.to_string_lossy()).collect();
        let mut keys = (2..=4).rev().filter_map(|count| Some(names.get(names.len().checked_sub(count)?..)?.join("/")));
        found.push(File { path: path.to_owned(), key: keys.find(|key| is_key(schemas, key)) });
        return Ok(());
    }
    let is_checkout = ["namespaces", "apiregistration.k8s.io"].iter().any(|name| path.join(name).is_dir());
    let mut walk = Walk { schemas, root: path, is_checkout, recursive: recursive || is_checkout, found };
    walk.folder(path)
}

struct Walk<'a> {
    schemas: &'a Schemas,
    root: &'a Path,
    is_checkout: bool,
    recursive: bool,
    found: &'a mut Vec<File>,
}

impl Walk<'_> {
    /// Symbolic links to folders are not followed: they may lead back.
    fn folder(&mut self, path: &Path) -> anyhow::Result<()> {
        let read = || format!("cannot read {}", path.display());
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in path.read_dir().with_context(read)? {
            let entry = entry.with_context(read)?;
            let file = entry.path();
            if entry.file_type().with_context(read)?.is_dir() {
                if entry.file_name() != ".git" {
                    folders.push(file);
                }
            } else {
                files.push(file);
            }
        }
        files.retain(|file| !file.is_dir());
        files.sort();
        for file in files {
            let relative = file.strip_prefix(self.root).unwrap_or(&file).to_string_lossy().into_owned();
            let is_of_branch = self.is_checkout && file.file_name().is_none_or(|name| name != ".git");
            let key = (is_of_branch || is_key(self.schemas, &relative)).then_some(relative);
            if key.is_some() || is_manifest(&file) {
                self.found.push(File { path: file, key });
            }
        }
        folders.sort();
        if !self.recursive {
            return Ok(());
        }
        folders.iter().try_for_each(|folder| self.folder(folder))
    }
}

/// Whether a path is that of an object of a known kind in a branch. Such files are named after their objects, without an
/// extension.
fn is_key(schemas: &Schemas, path: &str) -> bool {
    let count = path.split('/').count();
    let is_location = |(folder, components): (&gitcd::merge::schema::Folder, usize)| {
        count == components + 1 + usize::from(folder.is_namespaced)
    };
    !is_manifest(Path::new(path)) && schemas.folder(path).is_some_and(is_location)
}

fn is_manifest(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}
