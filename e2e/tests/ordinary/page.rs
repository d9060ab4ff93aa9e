//! The commands of `docs/ordinary-cluster.md`.

const PAGE: &str = include_str!("../../../docs/ordinary-cluster.md");

/// Returns the commands in a section, in order. A command continues after a backslash.
pub(crate) fn commands(section: &str) -> Vec<String> {
    let start = format!("{section}\n");
    let text = PAGE.split("\n## ").find(|part| part.starts_with(&start));
    let text = text.unwrap_or_else(|| panic!("docs/ordinary-cluster.md has no section {section:?}"));
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut commands = Vec::<String>::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(command)) if command.ends_with('\\') => {
                command.push('\n');
                command.push_str(line);
            }
            _ => {}
        }
    }
    assert!(!commands.is_empty(), "the section {section:?} has no commands");
    commands
}

#[test]
fn the_audit_policy_is_that_of_the_history_page() {
    let policy = include_str!("../../../deploy/control-plane/audit-policy.yaml");
    let history = include_str!("../../../docs/history.md");
    let indented = |line: &str| format!("   {line}\n");
    let rules: String = policy.lines().skip(1).map(indented).collect();
    assert!(history.contains(&rules), "docs/history.md has another policy than deploy/control-plane/audit-policy.yaml");
}
