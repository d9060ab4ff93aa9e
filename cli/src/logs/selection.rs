//! Which components a command line names.

use anyhow::anyhow;

/// The names on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'a> {
    /// Components, heavens and merges; all, if there are none.
    pub(super) names: &'a [String],
    /// The heaven of `--heaven`.
    pub(super) heaven: Option<&'a str>,
}

/// The selected components.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// Each once.
    pub(super) components: Vec<String>,
    /// Whether lines need the name of their component.
    pub(super) is_labelled: bool,
}

impl Selection<'_> {
    /// Selects among the known components.
    ///
    /// # Errors
    /// A name is that of no component and of no heaven; the message lists the known ones.
    pub(super) fn of(&self, known: &[String]) -> anyhow::Result<Selected> {
        let mut components: Vec<String> = Vec::new();
        let mut is_one = self.names.len() == 1;
        let heaven = self.heaven.map(ToOwned::to_owned);
        // Without names, the heaven is the name.
        let names = if self.names.is_empty() { heaven.as_slice() } else { self.names };
        for name in names {
            let in_heaven = self.heaven.filter(|_| !self.names.is_empty()).map(|heaven| format!("{heaven}/{name}"));
            let exact = known.iter().find(|known| in_heaven.as_ref() == Some(known));
            if let Some(component) = exact.or_else(|| known.iter().find(|known| *known == name)) {
                components.push(component.clone());
                continue;
            }
            let parts: Vec<String> = known.iter().filter(|known| heaven_of(known) == Some(name)).cloned().collect();
            if parts.is_empty() {
                return Err(unknown(name, known));
            }
            is_one = false;
            components.extend(parts);
        }
        if names.is_empty() {
            components = known.to_vec();
        }
        let mut seen = Vec::new();
        components.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        Ok(Selected { components, is_labelled: !is_one })
    }
}

fn heaven_of(component: &str) -> Option<&str> {
    component.split_once('/').map(|(heaven, _)| heaven)
}

fn unknown(name: &str, known: &[String]) -> anyhow::Error {
    let mut heavens: Vec<&str> = known.iter().filter_map(|name| heaven_of(name)).collect();
    heavens.dedup();
    let heavens =
        if heavens.is_empty() { String::new() } else { format!("; heavens and merges: {}", heavens.join(", ")) };
    anyhow!("there is no component or heaven {name:?}; components: {}{heavens}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(names: &[&str], heaven: Option<&str>) -> anyhow::Result<(String, bool)> {
        let known = ["supervisor", "desk/gitcd", "desk/kube-apiserver", "kcm/gitcd", "kcm/kcm"].map(ToOwned::to_owned);
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let selected = Selection { names: &names, heaven }.of(&known)?;
        Ok((selected.components.join(" "), selected.is_labelled))
    }

    #[test]
    fn a_name_is_a_component_or_all_of_a_heaven() {
        for (names, heaven, expected, is_labelled) in [
            (&[][..], None, "supervisor desk/gitcd desk/kube-apiserver kcm/gitcd kcm/kcm", true),
            (&["desk/gitcd"], None, "desk/gitcd", false),
            (&["supervisor"], None, "supervisor", false),
            (&["desk"], None, "desk/gitcd desk/kube-apiserver", true),
            (&["kcm/gitcd", "desk/gitcd", "kcm"], None, "kcm/gitcd desk/gitcd kcm/kcm", true),
            (&[], Some("kcm"), "kcm/gitcd kcm/kcm", true),
            (&["gitcd"], Some("kcm"), "kcm/gitcd", false),
            (&["desk/gitcd"], Some("kcm"), "desk/gitcd", false),
            (&["kcm"], Some("kcm"), "kcm/kcm", false),
        ] {
            let selected = select(names, heaven).unwrap();
            assert_eq!((selected.0.as_str(), selected.1), (expected, is_labelled), "{names:?} {heaven:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_what_there_is() {
        let said = select(&["desk", "apiserver"], None).unwrap_err().to_string();
        assert!(
            said.starts_with("there is no component or heaven \"apiserver\"; components: supervisor, desk/"),
            "{said}"
        );
        assert!(said.ends_with("kcm/kcm; heavens and merges: desk, kcm"), "{said}");
        assert!(select(&[], Some("sky")).unwrap_err().to_string().contains("\"sky\""));
        let central = Selection { names: &["desk".to_owned()], heaven: None }.of(&["gitcd".to_owned()]);
        assert_eq!(central.unwrap_err().to_string(), "there is no component or heaven \"desk\"; components: gitcd");
    }
}
