//! Delivery of results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::document::Section;

/// Destinations of the report besides standard output.
#[derive(Debug, clap::Args)]
pub struct Output {
    /// Writes this measurement's section of a Markdown document
    #[arg(long, value_name = "PATH")]
    pub write: Option<PathBuf>,

    /// Writes all measurements as JSON; `-` prints it instead of the tables
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

impl Output {
    /// Prints the tables and writes the requested files.
    ///
    /// # Errors
    /// If a file cannot be written; the message names it.
    pub fn deliver(&self, report: &impl Serialize, tables: &str, section: Section, text: &str) -> Result<()> {
        let json = || serde_json::to_string_pretty(report).map(|text| text + "\n");
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => print!("{}", json()?),
            Some(path) => {
                fs::write(path, json()?).with_context(|| format!("cannot write {}", path.display()))?;
                println!("{tables}");
            }
            None => println!("{tables}"),
        }
        if let Some(path) = &self.write {
            section.write(path, text)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

/// The current time, UTC.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
