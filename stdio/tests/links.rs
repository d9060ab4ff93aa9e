//! Links between the Markdown files of the repository lead somewhere, and the book has every page.

mod workspace;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use self::workspace::root;

/// Returns the Markdown files that Git knows, or would add.
fn pages() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root())
        .output()
        .expect("the workspace is a Git repository");
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    listed.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect()
}

/// Returns the text without blocks and spans of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Every second part is between backticks.
            prose.extend(line.split('`').step_by(2));
        }
        prose.push('\n');
    }
    prose
}

/// Returns the anchor that GitHub and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let plain: String = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect();
    plain.trim().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && line.starts_with('#') {
            // A link in a heading counts with its text.
            let heading = line.trim_start_matches('#');
            anchors.insert(anchor(heading));
        }
    }
    anchors
}

/// Returns the targets of all links of a page.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).map(ToOwned::to_owned);
    let named = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
    inline.chain(named.map(|(_, target)| target.trim().to_owned())).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).expect("the page is text");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") || link.is_empty() {
                continue;
            }
            let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => root().join(&page),
                path => root().join(page.parent().expect("a file is in a folder")).join(path),
            };
            if !target.exists() {
                broken.push(format!("{}: {link}: no such file", page.display()));
            } else if !fragment.is_empty() && target.extension().is_some_and(|kind| kind == "md") {
                let text = std::fs::read_to_string(&target).expect("the page is text");
                if !anchors(&text).contains(fragment) {
                    broken.push(format!("{}: {link}: no such heading", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page_of_the_documentation() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the book has a summary");
    let listed: BTreeSet<String> = links(&summary).into_iter().collect();
    let missing: Vec<String> = pages()
        .iter()
        .filter_map(|page| page.strip_prefix("docs").ok())
        .map(|page| page.display().to_string())
        .filter(|page| page != "SUMMARY.md" && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {}", missing.join(", "));
}
