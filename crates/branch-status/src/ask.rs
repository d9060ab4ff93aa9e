//! A request for the status of a gitcd.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use trishanku_service::error::chain;
use trishanku_service::http::Client;
use trishanku_service::tls::{ClientTls, ServerName};

use crate::answer::{Answer, Branch};

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Size limit of a response.
const MOST_BYTES: usize = 1 << 20;
/// The name in the server's certificate, under which it serves in its pod.
const NAME: &str = "localhost";

/// Credentials for a gitcd, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The CA certificates of the server.
    pub authorities: Vec<u8>,
    /// The client certificate.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn client(address: IpAddr, port: u16, identity: &Identity) -> Result<Client, Failure> {
    let tls = ClientTls::new()
        .authorities(&identity.authorities)?
        .config_with_identity(&identity.certificate, &identity.key)?;
    let url = format!("https://{}", SocketAddr::new(address, port)).parse()?;
    let client = Client::builder(url).tls(tls).server_name(ServerName::try_from(NAME)?);
    Ok(client.within(PATIENCE).at_most(MOST_BYTES).build())
}

/// Requests the status of a branch from a gitcd.
pub(crate) async fn ask(address: IpAddr, port: u16, identity: &Identity) -> Result<Branch, String> {
    let asked = async {
        let client = client(address, port, identity)?;
        let request = Request::get("/status").header(HOST, NAME).body(Bytes::new())?;
        let response = client.send(request).await?;
        if !response.status().is_success() {
            return Err(Failure::from(format!("HTTP status {}", response.status())));
        }
        let answer: Answer = serde_json::from_slice(response.body())?;
        answer.branches.into_iter().next().ok_or_else(|| Failure::from("no branch in the response"))
    };
    asked.await.map_err(|error| chain(&*error))
}
