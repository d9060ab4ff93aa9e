//! Misspelt names.

/// Names that differ in more letters are other names.
const MOST_EDITS: usize = 2;

/// How the problem of an unknown field starts.
pub(crate) const UNKNOWN: &str = "unknown field: it would be dropped";

/// Returns the name that was probably meant: equal apart from case, or with up to two other letters.
pub(crate) fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let distance = |name: &str| edits(&written, &name.to_lowercase());
    let found = known.into_iter().map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance);
    // In a short name, two other letters are another word.
    let most = MOST_EDITS.min(written.chars().count() / 3);
    found.filter(|(distance, _)| *distance <= most).map(|(_, name)| name)
}

/// The problem of a field that is not among the known ones.
pub(crate) fn unknown<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let meant = closest(written, known).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
    format!("{UNKNOWN}{meant}")
}

/// Returns how many letters were added, left out, replaced or swapped with their neighbour.
fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (at, letter) in one.iter().enumerate() {
        let above = &rows[at];
        let mut row = vec![at + 1];
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != other_letter);
            let mut least = replaced.min(above[column + 1] + 1).min(row[column] + 1);
            if at > 0 && column > 0 && one[at - 1] == *other_letter && other[column - 1] == *letter {
                least = least.min(rows[at - 1][column - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_despite_case_and_two_other_letters() {
        let known = ["containers", "initContainers", "name"];
        for (written, expected) in [
            ("contaners", Some("containers")),
            ("Containers", Some("containers")),
            ("initcontainer", Some("initContainers")),
            ("nmae", Some("name")),
            ("image", None),
            ("n", None),
            ("", None),
        ] {
            assert_eq!(closest(written, known), expected, "{written}");
        }
        assert_eq!(unknown("x", known), "unknown field: it would be dropped");
    }
}
