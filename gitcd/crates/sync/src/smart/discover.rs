//! Discovery of a remote's capabilities.

use reqwest::StatusCode;

use super::lines::{Line, Lines};
use super::{Remote, Service, ask, checked, has_type, split};
use crate::EVENTS_HEADER;
use crate::credentials::Credentials;
use crate::wire::TransportError;

/// Requests the capabilities of a remote.
pub(super) async fn discover(
    client: &reqwest::Client,
    asked: &str,
    credentials: &Credentials,
    service: Service,
) -> Result<Remote, TransportError> {
    let (bare, _) = split(asked);
    let bare = bare.trim_end_matches('/');
    let suffix = format!("/info/refs?service={}", service.name());
    let mut request = client.get(format!("{bare}{suffix}"));
    if service == Service::Fetch {
        request = request.header("git-protocol", "version=2");
    }
    let response = ask(request, credentials, asked).await?;
    let asks_for_credentials = response.status() == StatusCode::UNAUTHORIZED && credentials.are_absent();
    if asks_for_credentials || response.status().is_redirection() {
        // The program can ask Git's credential helpers, and knows which credentials are for the other server.
        let url = bare.to_owned();
        return Ok(Remote { asked: asked.to_owned(), url, is_known: false, events: None, is_atomic: false });
    }
    let response = checked(response, bare)?;
    let url = response.url().as_str().strip_suffix(&*suffix).unwrap_or(bare).to_owned();
    let events = response.headers().get(EVENTS_HEADER).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let mut remote = Remote { asked: asked.to_owned(), url, is_known: false, events, is_atomic: false };
    if !has_type(&response, &format!("application/x-{}-advertisement", service.name())) {
        return Ok(remote);
    }
    let mut lines = Lines::new(response);
    let mut first = lines.next().await?;
    if matches!(&first, Some(Line::Data(line)) if line.starts_with(b"# service=")) {
        (_, first) = (lines.next().await?, lines.next().await?);
    }
    let Some(Line::Data(first)) = first else { return Ok(remote) };
    // The program reports what is wrong with other object formats.
    let is_other = |word: &str| word.starts_with("object-format=") && word != "object-format=sha1";
    match service {
        Service::Fetch => {
            let (mut lists, mut fetches, mut is_other_format) = (false, false, false);
            if first.trim_ascii_end() == b"version 2" {
                while let Some(line) = lines.listed().await? {
                    lists |= line == "ls-refs" || line.starts_with("ls-refs=");
                    fetches |= line == "fetch" || line.starts_with("fetch=");
                    is_other_format |= is_other(&line);
                }
            }
            remote.is_known = lists && fetches && !is_other_format;
        }
        Service::Push => {
            // The first line of the list has the capabilities.
            let capabilities = first.iter().position(|byte| *byte == 0).map(|at| first.slice(at + 1..));
            let capabilities = capabilities.map(|words| String::from_utf8_lossy(&words).trim_end().to_owned());
            if let Some(capabilities) = capabilities {
                let has = |wanted: &str| capabilities.split(' ').any(|word| word == wanted);
                remote.is_known = has("report-status") && !capabilities.split(' ').any(is_other);
                remote.is_atomic = has("atomic");
            }
        }
    }
    Ok(remote)
}
