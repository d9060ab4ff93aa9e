//! Kinds of heavens that other projects define.

use serde_json::Value;
use trishanku_api::GROUP;

/// The kinds of heavens among `CustomResourceDefinitions`: those whose spec has a `gitcd`, as every kind of heavens has.
#[derive(Debug, Default)]
pub(crate) struct HeavenDefinitions<'d>(Vec<&'d Value>);

impl<'d> HeavenDefinitions<'d> {
    /// Selects the kinds of heavens. Those of our own group are built in.
    pub(crate) fn among(documents: impl IntoIterator<Item = &'d Value>) -> Self {
        let is_heaven = |definition: &&Value| {
            let versions = definition["spec"]["versions"].as_array();
            definition["kind"] == "CustomResourceDefinition"
                && definition["spec"]["group"] != GROUP
                && versions.into_iter().flatten().any(|version| !of_spec(version)["properties"]["gitcd"].is_null())
        };
        Self(documents.into_iter().filter(is_heaven).collect())
    }

    /// Returns whether this document is one of the definitions, and another one of its kind differs.
    pub(crate) fn is_contradicted(&self, document: &Value) -> bool {
        let same = |other: &&&Value| other["metadata"]["name"] == document["metadata"]["name"];
        let mut copies = self.0.iter().filter(same);
        copies.clone().any(|copy| *copy == document) && copies.any(|copy| copy["spec"] != document["spec"])
    }

    /// Returns the definition of an object's kind.
    pub(crate) fn of(&self, group: &str, kind: &str) -> Option<HeavenDefinition<'d>> {
        let mut found = self.0.iter().filter(|definition| definition["spec"]["group"] == group);
        found
            .find(|definition| definition["spec"]["names"]["kind"] == kind)
            .map(|definition| HeavenDefinition(definition))
    }
}

/// The definition of a kind of heavens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeavenDefinition<'d>(&'d Value);

impl<'d> HeavenDefinition<'d> {
    /// Returns the schema of objects in a version; otherwise the names of the versions that are served.
    pub(crate) fn schema(self, version: &str) -> Result<&'d Value, String> {
        let served: Vec<_> =
            self.0["spec"]["versions"].as_array().into_iter().flatten().filter(|one| one["served"] == true).collect();
        if let Some(found) = served.iter().find(|served| served["name"] == version) {
            return Ok(&found["schema"]["openAPIV3Schema"]);
        }
        let names: Vec<_> = served.iter().filter_map(|served| served["name"].as_str()).collect();
        Err(names.join(", "))
    }
}

fn of_spec(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::{lint, lint_with};

    const OTHER: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.org}
spec:
  group: example.org
  names: {kind: Fleet}
  versions:
  - name: v1
    served: true
    schema:
      openAPIV3Schema:
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              userName: {type: string}
              gitcd: {type: object, x-kubernetes-preserve-unknown-fields: true}
            x-kubernetes-validations:
            - {rule: self.size < 10, message: size must be less than 10}
";

    /// Checks a Fleet whose definition has other fields beside gitcd, and other keywords of the spec and of the root.
    fn checked(fields: &str, of_spec: &str, of_root: &str, object: &str) -> Vec<String> {
        let definition = format!(
            "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: fleets.example.org}}, \
             spec: {{group: example.org, names: {{kind: Fleet}}, versions: [{{name: v1, served: true, schema: \
             {{openAPIV3Schema: {{type: object{of_root}, properties: {{spec: {{type: object{of_spec}, properties: \
             {{gitcd: {{type: object}}, {fields}}}}}}}}}}}}}]}}}}"
        );
        let text =
            format!("{definition}\n---\n{{apiVersion: example.org/v1, kind: Fleet, metadata: {{name: f}}{object}}}\n");
        lint(&text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_required_field_with_a_default_may_be_missing() {
        let fields = "size: {type: integer, default: 3}, name: {type: string}";
        let required = ", required: [size, name]";
        assert_eq!(checked(fields, required, "", ", spec: {name: a}"), [""; 0]);
        assert_eq!(checked(fields, required, "", ", spec: {}"), ["Fleet f: spec.name: Required value"]);
    }

    #[test]
    fn a_spec_may_be_missing_unless_the_definition_requires_it() {
        let fields = "size: {type: integer}";
        assert_eq!(checked(fields, ", required: [size]", "", ""), [""; 0]);
        assert_eq!(checked(fields, "", ", required: [spec]", ""), ["Fleet f: spec: Required value"]);
        // As any other field, it can have a default.
        assert_eq!(checked(fields, ", default: {size: 1}", ", required: [spec]", ""), [""; 0]);
    }

    #[test]
    fn an_embedded_object_has_the_fields_that_all_objects_have() {
        let fields = "inner: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}";
        let inner = |field: &str| {
            format!(", spec: {{inner: {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, {field}: {{}}}}}}")
        };
        assert_eq!(checked(fields, "", "", &inner("spec")), [""; 0]);
        let [found] = &checked(fields, "", "", &inner("specs"))[..] else { panic!() };
        assert!(found.contains("spec.inner.specs: unknown field"), "{found}");
    }

    #[test]
    fn an_optional_field_may_be_null() {
        let fields = "size: {type: integer}, names: {type: array, items: {type: string}}";
        assert_eq!(checked(fields, "", "", ", spec: {size: null, gitcd: null}"), [""; 0]);
        assert_eq!(
            checked(fields, ", required: [size]", "", ", spec: {size: null}"),
            ["Fleet f: spec.size: Required value"]
        );
        assert_eq!(checked(fields, "", "", ", spec: {names: [null]}").len(), 1, "kube-apiserver keeps null in a list");
    }

    #[test]
    fn a_pattern_that_cannot_be_compiled_is_not_checked() {
        let fields = |pattern: &str| format!("name: {{type: string, pattern: '{pattern}'}}");
        assert_eq!(checked(&fields("^a(?!b)"), "", "", ", spec: {name: c}"), [""; 0]);
        assert_eq!(checked(&fields("^a"), "", "", ", spec: {name: c}").len(), 1);
    }

    #[test]
    fn rules_see_the_defaults() {
        let fields = "size: {type: integer, default: 3}, mode: {type: string, default: all}";
        let rules = ", x-kubernetes-validations: [{rule: 'has(self.mode) && self.size > 2', message: too small}]";
        assert_eq!(checked(fields, rules, "", ", spec: {}"), [""; 0]);
        assert_eq!(checked(fields, rules, "", ", spec: {size: 1}"), ["Fleet f: spec: too small"]);
    }

    #[test]
    fn a_heaven_of_another_kind_is_checked_against_its_definition() {
        let fleet = |version: &str, spec: &str| {
            format!("{{apiVersion: example.org/{version}, kind: Fleet, metadata: {{name: f}}, spec: {{{spec}}}}}")
        };
        let with = |object: &str| lint(&format!("{OTHER}---\n{object}\n")).unwrap();
        assert_eq!(with(&fleet("v1", "size: 3, userName: u, gitcd: {git: {}}")), []);
        for (version, spec, field, problem) in [
            ("v1", "size: 0", "spec.size", "greater than or equal to 1"),
            ("v1", "size: 12", "spec", "size must be less than 10"),
            ("v1", "size: two", "spec.size", "must be of type integer"),
            ("v1", "userName: u", "spec.size", "Required value"),
            ("v1", "size: 3, usrName: u", "spec.usrName", "did you mean \"userName\"?"),
            ("v2", "size: 3", "apiVersion", "use one of v1"),
            ("v1", "size: 3, gitcd: {host: {tokensSecretName: t}}", "spec.gitcd.host", "tlsSecretName"),
        ] {
            let findings = with(&fleet(version, spec));
            let found = findings.iter().find(|finding| finding.field == field);
            let found = found.unwrap_or_else(|| panic!("{spec}: {findings:?}"));
            assert!(found.object == "Fleet f" && found.problem.contains(problem), "{spec}: {found}");
        }
        // The definition may be in another file, or in a list; without one, nothing is known about the kind.
        let wrong = fleet("v1", "size: 0");
        assert_eq!(lint(&wrong).unwrap(), []);
        let definition: Value = serde_saphyr::from_str(OTHER).unwrap();
        assert_eq!(lint_with(&wrong, std::slice::from_ref(&definition)).unwrap().len(), 1);
        let list = format!("{{apiVersion: v1, kind: List, items: [{definition}, {wrong}]}}");
        assert_eq!(lint(&list).unwrap().len(), 1);
        // Copies are the same kind unless they differ, of which only one would be in the cluster.
        assert_eq!(lint_with(OTHER, std::slice::from_ref(&definition)).unwrap(), []);
        let mut newer = definition.clone();
        newer["spec"]["versions"][0]["name"] = "v2".into();
        let findings = lint_with(OTHER, &[definition.clone(), newer]).unwrap();
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(
            finding.to_string(),
            "CustomResourceDefinition fleets.example.org: spec: another copy of this definition differs: remove one, or make them equal"
        );
        assert!(finding.is_of_other_project());
        // A kind without branches is no kind of heavens.
        assert_eq!(lint(&format!("{}---\n{wrong}\n", OTHER.replace("gitcd", "git"))).unwrap(), []);
    }
}
