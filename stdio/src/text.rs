//! Text from outside, such as names and values of objects, as it may be printed.

use std::path::Path;

/// Longer values are cut, unless the user asks for whole ones.
pub const MAX_CHARS: usize = 100;

/// Replaces characters that control the terminal or change the direction of text; line breaks, too.
pub fn plain(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if controls(c) { '\u{fffd}' } else { c }).collect()
}

/// Cuts a value to [`MAX_CHARS`] characters, and says how many are missing.
pub fn cut(text: &str) -> String {
    let mut chars = text.trim_end_matches('\n').chars();
    let kept: String = chars.by_ref().take(MAX_CHARS).collect();
    let rest = chars.count();
    if rest == 0 { kept } else { format!("{kept}… ({rest} more)") }
}

/// Quotes a path for a shell, where it needs that.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_control_the_terminal() {
        assert_eq!(plain("a\x1b[31mb\nc\u{202e}d é"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d é");
    }

    #[test]
    fn long_values_are_cut_by_characters() {
        assert_eq!(cut(&"é".repeat(MAX_CHARS)), "é".repeat(MAX_CHARS));
        assert_eq!(cut(&"é".repeat(MAX_CHARS + 3)), format!("{}… (3 more)", "é".repeat(MAX_CHARS)));
        assert_eq!(cut("a\n\n"), "a");
    }

    #[test]
    fn paths_are_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b")), "'/a b'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
