//! The volumes of a user's pod as folders.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{KeyToPath, Volume};

use super::check;
use super::error::RenderError;
use super::manifest::Data;
use super::paths::Translation;
use super::render_context::RenderContext;
use super::secrets::{make_folder, write};
use super::servers::kubeconfigs;
use super::site::Site;

/// The folder of a volume.
pub(super) fn folder(site: &Site, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host) => host.path.clone().into(),
        None => site.dir.join("volumes").join(&volume.name),
    }
}

/// Writes the folder and files of a volume.
///
/// # Errors
/// If its kind is not supported, or an object that it shows is missing.
pub(super) fn fill(
    context: &RenderContext<'_>,
    site: &Site,
    volume: &Volume,
    translation: &Translation,
) -> Result<(), RenderError> {
    let folder = folder(site, volume);
    let user = format!("heaven {:?}: volume {:?}", site.name, volume.name);
    let filling = Filling { context, site, folder: &folder, user: &user, translation };
    if volume.host_path.is_some() {
        return Ok(());
    }
    // Beside the folder, under a name that no volume can have.
    let claimed = folder.with_file_name(format!(".{}.claim", volume.name));
    if volume.persistent_volume_claim.is_some() {
        make_folder(&folder)?;
        write(&claimed, b"", 0o600)?;
        return Ok(());
    }
    if claimed.exists() {
        let reason = format!(
            "volume {:?} was a persistentVolumeClaim, whose data would be lost: rename the volume, or remove {} and {}",
            volume.name,
            folder.display(),
            claimed.display()
        );
        return Err(RenderError::Template { of: format!("heaven {:?}", site.name), reason });
    }
    // Other volumes last as long as a run, and keys that were removed must not remain.
    let _not_there = std::fs::remove_dir_all(&folder);
    make_folder(&folder)?;
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.clone().unwrap_or_default();
        return filling.secret(&name, secret.items.as_deref(), secret.optional);
    }
    if let Some(map) = &volume.config_map {
        return filling.config_map(&map.name, map.items.as_deref(), map.optional, map.default_mode);
    }
    if let Some(projected) = &volume.projected {
        for source in projected.sources.iter().flatten() {
            if let Some(secret) = &source.secret {
                filling.secret(&secret.name, secret.items.as_deref(), secret.optional)?;
            } else if let Some(map) = &source.config_map {
                filling.config_map(&map.name, map.items.as_deref(), map.optional, projected.default_mode)?;
            } else {
                return Err(filling.unsupported("a projection of anything but Secrets and ConfigMaps"));
            }
        }
        return Ok(());
    }
    // A volume without any source is an empty folder, too.
    let is_bare =
        serde_json::to_value(volume).is_ok_and(|value| value.as_object().is_some_and(|fields| fields.len() == 1));
    if volume.empty_dir.is_some() || is_bare { Ok(()) } else { Err(filling.unsupported("its kind of volume")) }
}

struct Filling<'a> {
    context: &'a RenderContext<'a>,
    site: &'a Site,
    folder: &'a Path,
    user: &'a str,
    translation: &'a Translation,
}

impl Filling<'_> {
    fn secret(&self, name: &str, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Result<(), RenderError> {
        if optional == Some(true) && !self.context.secrets.has(name) {
            return Ok(());
        }
        let data = kubeconfigs(self.site, self.context.secrets.get(name, self.user)?);
        for (key, file, content) in chosen(data, items, self.user)? {
            let path = self.folder.join(file);
            write(&path, &content, 0o600)?;
            self.context.shows(self.site, name, &key, path, true);
        }
        Ok(())
    }

    fn config_map(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
        mode: Option<i32>,
    ) -> Result<(), RenderError> {
        let Some(data) = self.context.config_maps.get(name) else {
            if optional == Some(true) {
                return Ok(());
            }
            return Err(RenderError::NoConfigMap {
                of: self.user.to_owned(),
                name: name.to_owned(),
                key: String::new(),
            });
        };
        // Only the owner's bits: other users must not read a program's files.
        let mode = mode.map_or(0o600, |mode| u32::try_from(mode).unwrap_or_default() & 0o700 | 0o600);
        for (_, name, content) in chosen(data.clone(), items, self.user)? {
            let content = match std::str::from_utf8(&content) {
                Ok(text) => self.translation.of(text).into_bytes(),
                Err(_) => content,
            };
            write(&self.folder.join(name), &content, mode)?;
        }
        Ok(())
    }

    fn unsupported(&self, what: &str) -> RenderError {
        RenderError::Unsupported {
            of: self.user.to_owned(),
            what: what.to_owned(),
            remedy: ": use a secret, configMap, emptyDir, hostPath, persistentVolumeClaim, or a projection of the first two",
        }
    }
}

/// Returns keys, file names and values.
fn chosen(data: Data, items: Option<&[KeyToPath]>, user: &str) -> Result<Vec<(String, String, Vec<u8>)>, RenderError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, value)| (key.clone(), key, value)).collect());
    };
    let mut chosen = Vec::new();
    for KeyToPath { key, path, .. } in items {
        let wrong = |reason| RenderError::Template { of: user.to_owned(), reason };
        check::inside("items[].path", path).map_err(wrong)?;
        if let Some(value) = data.get(key) {
            chosen.push((key.clone(), path.clone(), value.clone()));
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::heavens::ImagePrograms;
    use crate::heavens::secrets::Secrets;
    use crate::plane::{Assets, Home};

    #[test]
    fn what_a_claim_holds_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let site = Site::new(&home, "a", &BTreeMap::new());
        let secrets = Secrets::new(home.secrets(), BTreeMap::new());
        let context = RenderContext {
            home: &home,
            assets: &Assets::at(dir.path()),
            gitcd: dir.path(),
            images: &ImagePrograms::default(),
            secrets: &secrets,
            config_maps: &BTreeMap::new(),
            copies: std::cell::RefCell::default(),
        };
        let fill = |volume: serde_json::Value| {
            let volume: Volume = serde_json::from_value(volume).unwrap();
            fill(&context, &site, &volume, &Translation::default()).map_err(|error| error.to_string())
        };
        let kept = site.dir.join("volumes/data/kept");
        let claim = || fill(json!({"name": "data", "persistentVolumeClaim": {"claimName": "c"}}));
        claim().unwrap();
        std::fs::write(&kept, "x").unwrap();
        let said = fill(json!({"name": "data", "emptyDir": {}})).unwrap_err();
        assert!(said.contains("\"data\" was a persistentVolumeClaim"), "{said}");
        claim().unwrap();
        assert!(kept.is_file());
        let gone = site.dir.join("volumes/scratch/gone");
        fill(json!({"name": "scratch", "emptyDir": {}})).unwrap();
        std::fs::write(&gone, "x").unwrap();
        fill(json!({"name": "scratch", "emptyDir": {}})).unwrap();
        assert!(!gone.exists());
    }
}
