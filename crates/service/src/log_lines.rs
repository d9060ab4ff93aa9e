//! Log lines for people or for programs.
//!
//! ```
//! use tracing_subscriber::fmt::format::JsonFields;
//! use tracing_subscriber::layer::SubscriberExt;
//! use trishanku_service::log_lines::{Format, LogLines};
//!
//! let layer = tracing_subscriber::fmt::layer()
//!     .fmt_fields(JsonFields::new())
//!     .event_format(LogLines::new("json".parse::<Format>()?));
//! let subscriber = tracing_subscriber::registry().with(layer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::{self, Write};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::{Extensions, LookupSpan};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Time, level, message and `name=value`, in colours on a terminal.
    #[default]
    Human,
    /// A JSON object for each line: `time`, `level`, `message`, `target`, then the fields.
    Json,
}

/// Error of a text that is neither `human` nor `json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a log format: use human or json")]
pub struct UnknownFormat(String);

impl std::str::FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// The trace and the span to which a line belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// 32 hexadecimal digits.
    pub trace: String,
    /// 16 hexadecimal digits.
    pub span: String,
}

/// Writes log lines, with the fields of all spans around them; those of inner spans take precedence. Fields whose names start with
/// `otel.` are left out. The layer must use [`JsonFields`].
#[derive(Clone, Copy, Debug)]
pub struct LogLines {
    format: Format,
    ids: fn(&Extensions<'_>) -> Option<Ids>,
}

impl LogLines {
    /// Lines in this format.
    pub fn new(format: Format) -> Self {
        Self { format, ids: |_| None }
    }

    /// Adds `trace_id` and `span_id` to lines inside a span for which `ids` returns them.
    #[must_use]
    pub fn with_ids(self, ids: fn(&Extensions<'_>) -> Option<Ids>) -> Self {
        Self { ids, ..self }
    }
}

impl<S> FormatEvent<S, JsonFields> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut ids = None;
        // From the innermost span outwards: inner fields take precedence.
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            ids = ids.or_else(|| (self.ids)(&extensions));
            let of_span = extensions.get::<FormattedFields<JsonFields>>().map_or("", |fields| fields.fields.as_str());
            for (name, value) in serde_json::from_str::<Map<_, _>>(of_span).unwrap_or_default() {
                // These are for exporters.
                if !name.starts_with("otel.") {
                    fields.named.entry(name).or_insert(value);
                }
            }
        }
        if let Some(Ids { trace, span }) = ids {
            fields.named.insert("trace_id".to_owned(), trace.into());
            fields.named.insert("span_id".to_owned(), span.into());
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        match self.format {
            Format::Json => json(&mut writer, time, *metadata.level(), metadata.target(), fields),
            Format::Human => human(&mut writer, &time, *metadata.level(), &fields),
        }
    }
}

fn json(writer: &mut Writer<'_>, time: String, level: Level, target: &str, fields: Fields) -> fmt::Result {
    let mut line = Map::new();
    line.insert("time".to_owned(), time.into());
    line.insert("level".to_owned(), level.as_str().into());
    line.insert("message".to_owned(), fields.message.into());
    line.insert("target".to_owned(), target.into());
    for (name, value) in fields.named {
        line.entry(name).or_insert(value);
    }
    writeln!(writer, "{}", Value::Object(line))
}

fn human(writer: &mut Writer<'_>, time: &str, level: Level, fields: &Fields) -> fmt::Result {
    if writer.has_ansi_escapes() {
        let colour = match level {
            Level::ERROR => 31,
            Level::WARN => 33,
            Level::INFO => 32,
            _ => 34,
        };
        write!(writer, "\x1b[2m{time}\x1b[0m \x1b[{colour}m{:>5}\x1b[0m ", level.as_str())?;
    } else {
        write!(writer, "{time} {:>5} ", level.as_str())?;
    }
    tame(writer, &fields.message)?;
    for (name, value) in &fields.named {
        write!(writer, " {name}=")?;
        match value {
            Value::String(text) if text.is_empty() || text.contains([' ', '"', '=']) => write!(writer, "{text:?}")?,
            Value::String(text) => tame(writer, text)?,
            other => write!(writer, "{other}")?,
        }
    }
    writeln!(writer)
}

/// Writes text from elsewhere. Control characters are escaped, so it cannot start a line or control a terminal.
fn tame(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        if character.is_control() {
            write!(writer, "{}", character.escape_default())?;
        } else {
            writer.write_char(character)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Fields {
    message: String,
    named: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.named.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing into a string does not fail.
            let _written = write!(self.message, "{value:?}");
        } else {
            self.add(field, format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.add(field, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A writer that keeps the text.
    #[derive(Clone, Debug, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
        }
    }

    impl io::Write for Written {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, say: impl FnOnce()) -> String {
        let lines = Written::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer({
                let lines = lines.clone();
                move || lines.clone()
            })
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(LogLines::new(format));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), say);
        lines.text()
    }

    fn say() {
        let outer = tracing::info_span!("outer", object.name = "a b", attempt = 2, otel.kind = "client");
        let _outer = outer.enter();
        let inner = tracing::info_span!("inner", attempt = 3);
        let _inner = inner.enter();
        tracing::warn!(reason = "Broken", error = "it said\n\"no\"\u{1b}[2J", "went wrong\nhere");
    }

    #[test]
    fn a_line_for_programs_has_the_fields_of_all_spans_and_the_nearest_wins() {
        let line = written(Format::Json, say);
        let mut parsed: Map<String, Value> = serde_json::from_str(&line).expect("it is one object on one line");
        let time = parsed.remove("time").and_then(|time| time.as_str().map(ToOwned::to_owned)).unwrap_or_default();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
        let expected = serde_json::json!({
            "level": "WARN", "message": "went wrong\nhere", "target": "trishanku_service::log_lines::tests",
            "reason": "Broken", "error": "it said\n\"no\"\u{1b}[2J", "attempt": 3, "object.name": "a b",
        });
        assert_eq!(Value::Object(parsed), expected);
    }

    #[test]
    fn a_line_for_people_stays_one_and_leaves_the_terminal_alone() {
        let line = written(Format::Human, say);
        let expected = " WARN went wrong\\nhere reason=Broken error=\"it said\\n\\\"no\\\"\\u{1b}[2J\" attempt=3 object.name=\"a b\"\n";
        assert_eq!(&line["2026-11-22T08:00:00.000000Z ".len()..], expected);
    }
}
