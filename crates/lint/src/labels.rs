//! Labels of namespaces whose pods get a heaven.

use std::fmt;

use serde_json::Value;
use trishanku_heaven_plan::injected::INJECT;

/// The namespaces with the label, and the names of their heavens.
#[derive(Debug, Default)]
pub(crate) struct InjectLabels<'d>(Vec<(&'d str, &'d str)>);

impl<'d> InjectLabels<'d> {
    pub(crate) fn of(documents: impl IntoIterator<Item = &'d Value>) -> Self {
        let labelled = |object: &'d Value| {
            let metadata = (object["kind"] == "Namespace").then_some(&object["metadata"])?;
            Some((metadata["name"].as_str()?, metadata["labels"][INJECT].as_str()?))
        };
        Self(documents.into_iter().filter_map(labelled).collect())
    }

    /// Returns the namespace whose label names the heaven with this metadata. A heaven without a namespace may be in any.
    pub(crate) fn naming(&self, heaven: &Value) -> Option<Labelled<'d>> {
        let (name, namespace) = (heaven["name"].as_str()?, heaven["namespace"].as_str());
        let mut named = self.0.iter().filter(|(_, heaven)| *heaven == name).map(|(labelled, _)| *labelled);
        let found = named.find(|labelled| namespace.is_none_or(|namespace| namespace == *labelled))?;
        Some(Labelled { namespace: found, is_assumed: namespace.is_none() })
    }
}

/// A namespace whose label names a heaven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labelled<'d> {
    namespace: &'d str,
    /// The heaven does not say that it is in that namespace.
    is_assumed: bool,
}

impl fmt::Display for Labelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the label {INJECT} of namespace {:?} names this heaven", self.namespace)?;
        if self.is_assumed {
            f.write_str(" (if it is in another namespace, set metadata.namespace)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trishanku_api::{GROUP, VERSION};

    use crate::{lint, lint_with};

    #[test]
    fn an_injected_heaven_is_checked_as_the_webhook_checks_it() {
        let user = "certificates: {controller: {userName: u}}";
        let heaven = |spec: &str| {
            format!(
                "{{apiVersion: {GROUP}/{VERSION}, kind: TrishankuHeaven, metadata: {{name: shop}}, spec: {{{spec}}}}}"
            )
        };
        let labelled = |namespace: &str| {
            format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, labels: {{controllers.trishanku.org/inject: shop}}}}}}"
            )
        };
        let good = format!("skip: {{app: true}}, {user}, gitcd: {{git: {{branches: {{data: shop/$(REPLICA)}}}}}}");
        let with = |spec: &str| lint(&format!("{}\n---\n{}", labelled("team"), heaven(spec))).unwrap();
        assert_eq!(with(&good), []);
        for (spec, words) in [
            (format!("skip: {{app: true}}, {user}"), "add $(REPLICA)"),
            (good.replace(user, "certificates: {}"), "spec.certificates.controller is missing"),
            (
                good.replace("gitcd: {", "gitcd: {storage: {volumeClaim: {size: 1Gi}}, "),
                "spec.gitcd.storage.volumeClaim",
            ),
            (good.replace("gitcd: {", "gitcd: {host: {tokensSecretName: t, tlsSecretName: c}, "), "remove the host"),
        ] {
            let findings = with(&spec);
            assert!(findings.len() == 1 && findings[0].problem.contains(words), "{spec}: {findings:?}");
            // The reason, which may be in another file.
            assert!(findings[0].problem.contains("inject of namespace \"team\" names this heaven"), "{findings:?}");
        }
        let deployed = format!(
            "{user}, gitcd: {{git: {{branches: {{data: shop}}}}}}, app: {{podTemplate: {{spec: {{containers: [{{name: a, image: a}}]}}}}}}"
        );
        let findings = with(&deployed);
        assert!(findings.len() == 1 && findings[0].field == "spec.skip.app", "{findings:?}");
        let said = &findings[0].problem;
        assert!(said.contains("\"team\"") && said.contains("set metadata.namespace"), "{findings:?}");
        let there = heaven(&deployed).replace("name: shop", "name: shop, namespace: team");
        let findings = lint_with(&there, &[serde_saphyr::from_str(&labelled("team")).unwrap()]).unwrap();
        assert!(findings.len() == 1 && !findings[0].problem.contains("metadata.namespace"), "{findings:?}");
        // The label is that of another namespace; and a branch with the placeholder is enough.
        let elsewhere =
            heaven(&format!("skip: {{app: true}}, {user}")).replace("name: shop", "name: shop, namespace: other");
        assert_eq!(lint(&format!("{}\n---\n{elsewhere}", labelled("team"))).unwrap(), []);
        assert_eq!(lint(&heaven("skip: {app: true}")).unwrap(), [], "it may be the heaven of another machine");
        let without_user = good.replace(user, "certificates: {}");
        assert_eq!(lint(&heaven(&without_user)).unwrap().len(), 1);
    }
}
