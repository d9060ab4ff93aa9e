//! Text from outside, such as names and values.

use maud::{Markup, html};
use trishanku_stdio::text::plain;

/// Characters of a value; the rest is on the page with whole values.
const SHOWN: usize = 20_000;
/// Characters of a value on a page with whole values: more than a store accepts.
const WHOLE: usize = 4_000_000;

/// Renders text on one line, isolated from the direction of the text around it.
pub(super) fn line(text: &str) -> Markup {
    html! { bdi { (plain(text)) } }
}

/// Replaces control characters except line breaks and tabs.
pub(super) fn block(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(plain).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Renders a value, cut unless whole values are requested. `whole` is the link to these.
pub(super) fn value(text: &str, is_whole: bool, whole: &str) -> Markup {
    let limit = if is_whole { WHOLE } else { SHOWN };
    let end = text.char_indices().nth(limit).map_or(text.len(), |(at, _)| at);
    let rest = text[end..].chars().count();
    html! {
        bdi { (block(&text[..end])) }
        @if rest > 0 {
            " … " a href=(whole) { (rest) " more characters" }
        }
    }
}

/// Renders a moment in UTC.
pub(super) fn time(seconds: i64) -> Markup {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    // After the year 9999, which a forged commit may have, there is no format.
    let latest = std::time::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
    let exact = humantime::format_rfc3339_seconds(time.min(latest)).to_string();
    let shown = exact.replace('T', " ").replace('Z', " UTC");
    html! { time datetime=(exact) { (shown) } }
}

/// Renders a link to a commit.
pub(super) fn commit(id: &str) -> Markup {
    html! { a.id href={ "/commit/" (id) } { (id.get(..10).unwrap_or(id)) } }
}

/// Renders a count with its noun: `1 object`, `2 objects`.
pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_inert() {
        let rendered = line("<script>\"&\u{202e}x\n\u{0}").into_string();
        assert_eq!(rendered, "<bdi>&lt;script&gt;&quot;&amp;\u{fffd}x\u{fffd}\u{fffd}</bdi>");
        assert_eq!(block("a\n\tb\u{1b}\r"), "a\n\tb\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_values_are_cut_by_characters_with_a_link_to_all() {
        let text = "é".repeat(SHOWN + 2);
        let cut = value(&text, false, "/x?a&b").into_string();
        assert!(cut.ends_with("</bdi> … <a href=\"/x?a&amp;b\">2 more characters</a>"), "{}", &cut[cut.len() - 80..]);
        assert_eq!(value(&text, true, "").into_string(), format!("<bdi>{text}</bdi>"));
    }

    #[test]
    fn times_that_do_not_exist_do_no_harm() {
        assert!(time(i64::MAX).into_string().contains("9999-12-31 23:59:59 UTC"));
        assert!(time(-1).into_string().contains("1970-01-01 00:00:00 UTC"));
    }
}
