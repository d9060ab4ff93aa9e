//! The variables of a user's container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource};

use super::error::RenderError;
use super::manifest::Data;
use super::site::Site;
use super::workshop::Workshop;

/// Variables in a stable order.
pub(super) type Variables = BTreeMap<String, String>;

/// What the container says, from Secrets and `ConfigMap`s too.
///
/// # Errors
/// If one of these is missing, or something is asked for that no process has.
pub(super) fn of(
    workshop: &Workshop<'_>,
    site: &Site,
    container: &Container,
    of: &str,
) -> Result<Variables, RenderError> {
    let mut variables = Variables::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        let data = if let Some(map) = &from.config_map_ref {
            config_map(workshop, &map.name, map.optional, of)?
        } else if let Some(secret) = &from.secret_ref {
            secret_data(workshop, &secret.name, secret.optional, of)?
        } else {
            None
        };
        let values = data.unwrap_or_default().into_iter();
        variables.extend(values.map(|(key, value)| (format!("{prefix}{key}"), text(&value))));
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &variables)),
            (None, Some(source)) => from_source(workshop, site, source, of)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// `$(NAME)` is the variable of this name; `$$(` is `$(`. What is no variable stays.
pub(super) fn expand(text: &str, variables: &Variables) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'))
            && let Some(value) = variables.get(name)
        {
            out.push_str(value);
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

fn from_source(
    workshop: &Workshop<'_>,
    site: &Site,
    source: &EnvVarSource,
    of: &str,
) -> Result<Option<String>, RenderError> {
    if let Some(key) = &source.config_map_key_ref {
        let data = config_map(workshop, &key.name, key.optional, of)?;
        let value = data.and_then(|data| data.get(&key.key).map(|value| text(value)));
        return if value.is_none() && key.optional != Some(true) {
            let with_key = format!(" with key {:?}", key.key);
            Err(RenderError::NoConfigMap { of: of.to_owned(), name: key.name.clone(), key: with_key })
        } else {
            Ok(value)
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let data = secret_data(workshop, &key.name, key.optional, of)?;
        return Ok(data.and_then(|data| data.get(&key.key).map(|value| text(value))));
    }
    let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    Ok(Some(match field {
        Some("metadata.name" | "spec.nodeName") => site.name.clone(),
        Some("metadata.namespace") => "default".to_owned(),
        Some("status.podIP" | "status.hostIP") => "127.0.0.1".to_owned(),
        _ => {
            let what = field.unwrap_or("a variable from elsewhere than a field, a Secret or a ConfigMap").to_owned();
            let remedy = ": give the variable a value";
            return Err(RenderError::Unsupported { of: of.to_owned(), what, remedy });
        }
    }))
}

fn config_map(
    workshop: &Workshop<'_>,
    name: &str,
    optional: Option<bool>,
    of: &str,
) -> Result<Option<Data>, RenderError> {
    match workshop.config_maps.get(name) {
        None if optional != Some(true) => {
            Err(RenderError::NoConfigMap { of: of.to_owned(), name: name.to_owned(), key: String::new() })
        }
        found => Ok(found.cloned()),
    }
}

fn secret_data(
    workshop: &Workshop<'_>,
    name: &str,
    optional: Option<bool>,
    of: &str,
) -> Result<Option<Data>, RenderError> {
    if optional == Some(true) && !workshop.secrets.has(name) {
        return Ok(None);
    }
    Ok(Some(workshop.secrets.get(name, of)?))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubelet_does() {
        let variables = Variables::from([("A".to_owned(), "1".to_owned())]);
        for (given, expected) in
            [("x$(A)y$(A)", "x1y1"), ("$(B) $(A", "$(B) $(A"), ("$$(A) $A $", "$(A) $A $"), ("", "")]
        {
            assert_eq!(expand(given, &variables), expected);
        }
    }
}
