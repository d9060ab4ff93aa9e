//! The error that a gitcd command printed.

/// What clap prints before the reason why it refuses a value, and between the reason and a hint at `--help`.
const REFUSED: &str = "error: ";
const HINT: &str = "\n\n";

/// Returns the error from what a gitcd command printed on stderr, without the program's name, without what was logged before it, and
/// without the flag, which users of this program did not give. Returns all of it if it has no error.
#[must_use]
pub fn of(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let after = |prefix: &str| {
        let starts = text.match_indices(prefix).filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'));
        starts.last().map(|(at, prefix)| text[at + prefix.len()..].trim_end())
    };
    if let Some(error) = after("gitcd: ") {
        return error.to_owned();
    }
    let Some(refused) = after(REFUSED) else { return text.trim().to_owned() };
    let error = refused.split(HINT).next().unwrap_or(refused);
    let reason = error.strip_prefix("invalid value ").and_then(|value| value.split_once(">': "));
    reason.map_or(error, |(_, reason)| reason).to_owned()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn an_error_has_neither_prefix_nor_log_nor_hint() {
        for (printed, expected) in [
            ("gitcd: there is no \"a\": b\n", "there is no \"a\": b"),
            ("INFO gitcd: started\ngitcd: first\ngitcd: one\n  two\n", "one\n  two"),
            (
                "error: invalid value 'x' for '--at <WHEN>': \"x\" is not a moment: give 10m\n\nFor more information, try '--help'.\n",
                "\"x\" is not a moment: give 10m",
            ),
            (
                "error: the following required arguments were not provided:\n  <KEY>\n\nUsage: gitcd log <KEY>\n",
                "the following required arguments were not provided:\n  <KEY>",
            ),
            ("Segmentation fault\n", "Segmentation fault"),
            ("", ""),
        ] {
            assert_eq!(of(printed.as_bytes()), expected, "{printed:?}");
        }
    }
}
