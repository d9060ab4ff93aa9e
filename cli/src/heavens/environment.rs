//! Environment variables of a user's container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource};

use super::error::RenderError;
use super::manifest::Data;
use super::paths::Translation;
use super::render_context::RenderContext;
use super::site::Site;

/// Variables in a stable order.
pub(super) type Variables = BTreeMap<String, Variable>;

/// The value of a variable.
#[derive(Clone, Debug, Default)]
pub(super) struct Variable {
    text: String,
    /// Whether it contains a value of a Secret, which is not translated. All other parts have been translated already.
    is_secret: bool,
}

impl Variable {
    /// The value for the process.
    pub(super) fn value(&self, translation: &Translation) -> String {
        if self.is_secret { self.text.clone() } else { translation.of(&self.text) }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_secret: false }
    }

    fn secret(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_secret: true }
    }
}

/// The container's variables, including those from Secrets and `ConfigMap`s.
///
/// # Errors
/// If a Secret or `ConfigMap` is missing, or a source is not supported.
pub(super) fn of(
    context: &RenderContext<'_>,
    site: &Site,
    container: &Container,
    translation: &Translation,
    of: &str,
) -> Result<Variables, RenderError> {
    let mut variables = Variables::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        let (data, is_secret) = if let Some(map) = &from.config_map_ref {
            (config_map(context, &map.name, map.optional, of)?, false)
        } else if let Some(secret) = &from.secret_ref {
            (secret_data(context, &secret.name, secret.optional, of)?, true)
        } else {
            (None, false)
        };
        let values = data.unwrap_or_default().into_iter();
        variables
            .extend(values.map(|(key, value)| (format!("{prefix}{key}"), Variable { text: text(&value), is_secret })));
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(literal(value, &variables, translation)),
            (None, Some(source)) => from_source(context, site, source, of)?,
            (None, None) => Some(Variable::default()),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// A value in a manifest, with references to earlier variables expanded.
fn literal(text: &str, variables: &Variables, translation: &Translation) -> Variable {
    let mut has_secret = false;
    let plain = expand(text, |name| {
        let found = variables.get(name)?;
        has_secret |= found.is_secret;
        Some(found.text.clone())
    });
    if has_secret { Variable::secret(expand_here(text, variables, translation)) } else { Variable::plain(plain) }
}

/// Expands variables in a text and translates the result, except for values of Secrets.
pub(super) fn expand_here(text: &str, variables: &Variables, translation: &Translation) -> String {
    // Plain variables first, so that `--port=$(PORT)` is translated as a whole. Inserted text is not expanded again.
    let others = expand_but(text, "$$", |name| {
        let found = variables.get(name).filter(|found| !found.is_secret)?;
        Some(found.text.replace('$', "$$"))
    });
    expand(&translation.of(&others), |name| Some(variables.get(name).filter(|found| found.is_secret)?.text.clone()))
}

/// Replaces `$(NAME)` with the variable's value and `$$` with `$`. Unknown names stay as they are.
fn expand(text: &str, value: impl FnMut(&str) -> Option<String>) -> String {
    expand_but(text, "$", value)
}

/// Like [`expand`], but replaces `$$` with `dollar`.
fn expand_but(text: &str, dollar: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push_str(dollar);
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'))
            && let Some(value) = value(name)
        {
            out.push_str(&value);
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

fn from_source(
    context: &RenderContext<'_>,
    site: &Site,
    source: &EnvVarSource,
    of: &str,
) -> Result<Option<Variable>, RenderError> {
    if let Some(key) = &source.config_map_key_ref {
        let data = config_map(context, &key.name, key.optional, of)?;
        let value = data.and_then(|data| data.get(&key.key).map(|value| Variable::plain(text(value))));
        return if value.is_none() && key.optional != Some(true) {
            let with_key = format!(" with key {:?}", key.key);
            Err(RenderError::NoConfigMap { of: of.to_owned(), name: key.name.clone(), key: with_key })
        } else {
            Ok(value)
        };
    }
    if let Some(key) = &source.secret_key_ref {
        let data = secret_data(context, &key.name, key.optional, of)?;
        return Ok(data.and_then(|data| data.get(&key.key).map(|value| Variable::secret(text(value)))));
    }
    let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    Ok(Some(Variable::plain(match field {
        Some("metadata.name" | "spec.nodeName") => site.name.clone(),
        Some("metadata.namespace") => "default".to_owned(),
        Some("status.podIP" | "status.hostIP") => "127.0.0.1".to_owned(),
        _ => {
            let what = field.unwrap_or("a variable whose source is not a field, a Secret or a ConfigMap").to_owned();
            let remedy = ": give the variable a value";
            return Err(RenderError::Unsupported { of: of.to_owned(), what, remedy });
        }
    })))
}

fn config_map(
    context: &RenderContext<'_>,
    name: &str,
    optional: Option<bool>,
    of: &str,
) -> Result<Option<Data>, RenderError> {
    match context.config_maps.get(name) {
        None if optional != Some(true) => {
            Err(RenderError::NoConfigMap { of: of.to_owned(), name: name.to_owned(), key: String::new() })
        }
        found => Ok(found.cloned()),
    }
}

fn secret_data(
    context: &RenderContext<'_>,
    name: &str,
    optional: Option<bool>,
    of: &str,
) -> Result<Option<Data>, RenderError> {
    if optional == Some(true) && !context.secrets.has(name) {
        return Ok(None);
    }
    Ok(Some(context.secrets.get(name, of)?))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubelet_does() {
        let nothing = Translation::default();
        for value in [Variable::plain("1"), Variable::secret("1")] {
            let variables = Variables::from([("A".to_owned(), value)]);
            are_expanded(&variables, &nothing);
        }
    }

    fn are_expanded(variables: &Variables, nothing: &Translation) {
        for (given, expected) in
            [("x$(A)y$(A)", "x1y1"), ("$(B) $(A", "$(B) $(A"), ("$$(A) $A $", "$(A) $A $"), ("", "")]
        {
            assert_eq!(expand_here(given, variables, nothing), expected);
            assert_eq!(literal(given, variables, nothing).value(nothing), expected);
        }
    }

    #[test]
    fn what_comes_from_secrets_is_not_translated() {
        let mut here = Translation::default();
        here.path("/root", std::path::Path::new("/h/root"));
        here.port(8080, 21000);
        let mut variables = Variables::from([
            ("PORT".to_owned(), Variable::plain("8080")),
            ("DOLLARS".to_owned(), Variable::plain("$(SECRET)$$")),
            ("SECRET".to_owned(), Variable::secret("/root:8080 $(PORT)")),
        ]);
        assert_eq!(variables["SECRET"].value(&here), "/root:8080 $(PORT)");
        for (given, expected) in [
            ("/root --port=$(PORT)", "/h/root --port=21000"),
            ("/root/$(SECRET),:$(PORT)", "/h/root//root:8080 $(PORT),:21000"),
            ("$$(SECRET) $(DOLLARS)$$", "$(SECRET) $(SECRET)$$$"),
        ] {
            assert_eq!(expand_here(given, &variables, &here), expected);
            assert_eq!(literal(given, &variables, &here).value(&here), expected);
            // As a variable that another one references.
            let made = literal(given, &variables, &here);
            variables.insert("MADE".to_owned(), made);
            assert_eq!(expand_here("<$(MADE)>", &variables, &here), format!("<{expected}>"));
        }
    }
}
