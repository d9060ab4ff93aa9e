//! Certificates in real TLS connections, with a simulated clock.

use std::sync::Arc;

use rcgen::KeyPair;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn names() -> names::Certificates {
    names::Certificates::of("a", &trishanku_api::TrishankuHeavenSpec::default())
}

fn begin() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::days(20_000)
}

const ACCOUNTS: &str = "a-cert-service-account";

/// The Secrets of a namespace, with a clock.
#[derive(Clone)]
struct Cluster {
    secrets: BTreeMap<String, Stored>,
    now: OffsetDateTime,
    reissue_before: Option<OffsetDateTime>,
    user: User,
}

impl Cluster {
    fn new() -> Self {
        let user = User { name: "system:kube-scheduler".to_owned(), group: Some("system:kube-scheduler".to_owned()) };
        Self { secrets: BTreeMap::new(), now: begin(), reissue_before: None, user }
    }

    fn begun() -> Self {
        let mut cluster = Self::new();
        assert_eq!(cluster.pass().len(), 5);
        cluster
    }

    fn issue(&self) -> Result<Issued, IssueError> {
        let stored = self.secrets.iter().map(|(name, stored)| (name.as_str(), stored.clone())).collect();
        let criteria = RenewalCriteria { now: self.now, reissue_before: self.reissue_before };
        issue(&names(), Some(&self.user), &stored, &criteria)
    }

    /// Writes the desired Secrets; returns the names of the changed ones.
    fn pass(&mut self) -> Vec<String> {
        let mut written = Vec::new();
        for Wanted { name, data, .. } in self.issue().unwrap().secrets {
            if self.secrets.get(&name).is_none_or(|stored| stored.data != data) {
                self.secrets.insert(name.clone(), Stored { data, is_ours: true });
                written.push(name);
            }
        }
        written
    }

    fn data(&self, name: &str) -> &Data {
        &self.secrets[name].data
    }

    fn certificate(&self, name: &str) -> Certificate {
        pem::certificates(self.data(name).get("tls.crt")).remove(0)
    }

    /// The key that signs service account tokens.
    fn signs(&self) -> KeyPair {
        pem::key(self.data(ACCOUNTS).get("tls.key")).unwrap()
    }

    /// Whether tokens of this key are accepted.
    fn takes(&self, key: &KeyPair) -> bool {
        pem::certificates(self.data(ACCOUNTS).get("tls.crt")).iter().any(|certificate| certificate.belongs_to(key))
    }

    async fn talk(&self, client: &str) -> Result<(), String> {
        talk(self.data("a-cert-kubernetes"), self.data(client), self.now).await
    }
}

#[derive(Debug)]
struct At(OffsetDateTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.unix_timestamp()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

fn roots(data: &Data) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&data["ca.crt"]) {
        roots.add(certificate.unwrap()).unwrap();
    }
    Arc::new(roots)
}

fn identity(data: &Data) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(&data["tls.crt"]).collect::<Result<_, _>>().unwrap();
    (chain, PrivateKeyDer::from_pem_slice(&data["tls.key"]).unwrap())
}

/// A request over mutual TLS, at a given time.
async fn talk(server: &Data, client: &Data, at: OffsetDateTime) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(server), provider.clone()).build().unwrap();
    let (chain, key) = identity(server);
    let listening = ServerConfig::builder_with_details(provider.clone(), Arc::new(At(at)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let (chain, key) = identity(client);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(client), provider.clone()).build().unwrap();
    let asks = ClientConfig::builder_with_details(provider, Arc::new(At(at)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let answers = async {
        let mut stream =
            TlsAcceptor::from(Arc::new(listening)).accept(far).await.map_err(|error| format!("server: {error}"))?;
        let mut letter = [0];
        stream.read_exact(&mut letter).await.map_err(|error| format!("server: {error}"))?;
        stream.write_all(&letter).await.map_err(|error| format!("server: {error}"))?;
        stream.shutdown().await.map_err(|error| format!("server: {error}"))
    };
    let speaks = async {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(asks)).connect(name, near).await;
        let mut stream = stream.map_err(|error| format!("client: {error}"))?;
        stream.write_all(b"x").await.map_err(|error| format!("client: {error}"))?;
        let mut letter = [0];
        stream.read_exact(&mut letter).await.map_err(|error| format!("client: {error}"))?;
        Ok(())
    };
    let (answered, spoken) = tokio::join!(answers, speaks);
    answered.and(spoken)
}

/// Tests every combination of certificates that programs may have in memory.
async fn all_get_on(before: &Cluster, after: &Cluster) {
    for (server, server_age) in [(before, "old"), (after, "new")] {
        for (client, client_age) in [(before, "old"), (after, "new")] {
            for name in ["a-admin", "a-controller"] {
                let spoken = talk(server.data("a-cert-kubernetes"), client.data(name), after.now).await;
                assert_eq!(spoken, Ok(()), "{server_age} server, {client_age} {name}, after {}", after.now - begin());
            }
        }
    }
}

#[tokio::test]
async fn what_is_made_is_used_and_a_second_pass_changes_nothing() {
    let mut cluster = Cluster::begun();
    for client in ["a-admin", "a-controller"] {
        cluster.talk(client).await.unwrap();
    }
    assert_eq!(cluster.pass(), [""; 0]);
    let subject = |name: &str| cluster.certificate(name).read(|parsed| parsed.subject().to_string());
    assert_eq!(subject("a-admin"), "CN=trishanku-admin, O=system:masters");
    assert_eq!(subject("a-controller"), "CN=system:kube-scheduler, O=system:kube-scheduler");
    let keys = |name: &str| cluster.data(name).keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(keys("a-cert-ca"), ["ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(keys(ACCOUNTS), ["tls.crt", "tls.key"]);
    assert_eq!(keys("a-cert-kubernetes"), ["ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(keys("a-controller"), ["ca.crt", "kubeconfig", "tls.crt", "tls.key"]);
    let kubeconfig = String::from_utf8(cluster.data("a-controller")["kubeconfig"].clone()).unwrap();
    assert!(kubeconfig.contains("server: https://localhost:6443\n"), "{kubeconfig}");
    let shown = format!("{:?}", cluster.issue().unwrap());
    assert!(!shown.contains("PRIVATE") && !shown.contains("tls.key"), "{shown}");
}

#[tokio::test]
async fn over_thirty_years_all_certificates_are_renewed_without_an_outage() {
    let mut cluster = Cluster::begun();
    // The certificates of programs that have been running for ten days.
    let (mut renewals, mut authorities) = (0, 0);
    // Keys that have signed tokens, and when they did so last.
    let mut signers = vec![(cluster.signs(), cluster.now)];
    let mut announced = cluster.now;
    while cluster.now < begin() + Duration::days(30 * 365) {
        let before = cluster.clone();
        let planned = cluster.issue().unwrap().look_again.expect("some renewal is due");
        cluster.now = (cluster.now + Duration::days(10)).min(planned.max(cluster.now + Duration::hours(1)));
        let written = cluster.pass();
        if !written.is_empty() {
            renewals += 1;
            authorities +=
                usize::from(written.contains(&"a-cert-ca".to_owned()) && written.contains(&"a-admin".to_owned()));
            all_get_on(&before, &cluster).await;
        }
        assert!(cluster.certificate("a-admin").not_after > cluster.now + Duration::days(90));
        let (key, last) = signers.last_mut().unwrap();
        if cluster.certificate(ACCOUNTS).belongs_to(key) {
            *last = cluster.now;
            announced = if before.data(ACCOUNTS).contains_key(NEXT) { announced } else { cluster.now };
        } else {
            // Programs that have not restarted for a day accept it as well.
            assert!(before.takes(&cluster.signs()) && cluster.now - announced >= Duration::days(1));
            signers.push((cluster.signs(), cluster.now));
        }
        for (key, last) in signers.iter().filter(|(_, last)| cluster.now - *last < Duration::days(365)) {
            assert!(cluster.takes(key), "tokens signed at {last} are rejected after {}", cluster.now - begin());
        }
    }
    assert!(renewals > 30 && authorities >= 4 && signers.len() >= 4, "{renewals}, {authorities}, {}", signers.len());
    // Obsolete certificates are removed.
    cluster.now += Duration::days(366);
    cluster.pass();
    assert!(pem::certificates(cluster.data("a-admin").get("ca.crt")).len() <= 2);
    assert!(!cluster.takes(&signers[0].0) && pem::certificates(cluster.data(ACCOUNTS).get("tls.crt")).len() <= 2);
}

#[test]
fn a_key_for_tokens_is_known_before_it_signs_and_taken_as_long_as_its_tokens_last() {
    let mut cluster = Cluster::begun();
    let (first, shown) = (cluster.signs(), cluster.issue().unwrap().fingerprint);
    cluster.now += Duration::days(3);
    cluster.reissue_before = Some(cluster.now);
    assert!(cluster.pass().contains(&ACCOUNTS.to_owned()));
    assert!(cluster.certificate(ACCOUNTS).belongs_to(&first), "it still signs");
    let second = pem::key(cluster.data(ACCOUNTS).get(NEXT)).unwrap();
    let issued = cluster.issue().unwrap();
    assert!(cluster.takes(&second) && issued.fingerprint != shown, "pods restart to read it");
    assert_eq!(issued.look_again, Some(cluster.now + Duration::days(1)));
    // Another heaven with the same Secret was not asked to reissue, and leaves it unchanged.
    cluster.reissue_before = None;
    cluster.now += Duration::hours(23);
    assert_eq!(cluster.pass(), [""; 0]);
    cluster.now += Duration::hours(1);
    assert_eq!(cluster.pass(), [ACCOUNTS]);
    assert!(cluster.certificate(ACCOUNTS).belongs_to(&second) && cluster.takes(&first));
    assert!(!cluster.data(ACCOUNTS).contains_key(NEXT) && cluster.issue().unwrap().fingerprint != issued.fingerprint);
    // Another rotation before the first key is dropped: three generations are accepted, each as long as necessary.
    cluster.now += Duration::days(300);
    cluster.reissue_before = Some(cluster.now);
    cluster.pass();
    cluster.now += Duration::days(1);
    cluster.pass();
    assert!(!cluster.certificate(ACCOUNTS).belongs_to(&second) && cluster.takes(&first) && cluster.takes(&second));
    cluster.now += Duration::days(66);
    cluster.pass();
    assert!(!cluster.takes(&first) && cluster.takes(&second));
    cluster.now += Duration::days(301);
    cluster.pass();
    assert!(!cluster.takes(&second) && cluster.takes(&cluster.signs()));
}

#[test]
fn an_unused_key_is_replaced_on_demand_and_an_untrusted_key_never_signs() {
    let mut cluster = Cluster::begun();
    cluster.now += Duration::days(3);
    cluster.reissue_before = Some(cluster.now);
    cluster.pass();
    let second = pem::key(cluster.data(ACCOUNTS).get(NEXT)).unwrap();
    cluster.now += Duration::hours(20);
    cluster.reissue_before = Some(cluster.now);
    cluster.pass();
    let third = pem::key(cluster.data(ACCOUNTS).get(NEXT)).unwrap();
    assert!(!cluster.takes(&second) && cluster.takes(&third));
    cluster.now += Duration::hours(20);
    assert!(!cluster.pass().contains(&ACCOUNTS.to_owned()), "it was announced less than a day ago");
    // Another client replaces it.
    let data = &mut cluster.secrets.get_mut(ACCOUNTS).unwrap().data;
    data.insert(NEXT.to_owned(), KeyPair::generate().unwrap().serialize_pem().into_bytes());
    let first = cluster.signs();
    cluster.now += Duration::days(2);
    cluster.pass();
    assert!(cluster.certificate(ACCOUNTS).belongs_to(&first) && cluster.takes(&third));
}

#[tokio::test]
async fn a_requested_renewal_happens_once_without_an_outage() {
    let mut cluster = Cluster::begun();
    cluster.now += Duration::days(3);
    let before = cluster.clone();
    cluster.reissue_before = Some(cluster.now);
    let fingerprint = |cluster: &Cluster| cluster.issue().unwrap().fingerprint;
    let first = fingerprint(&before);
    assert_eq!(cluster.pass(), ["a-cert-ca", ACCOUNTS, "a-cert-kubernetes", "a-admin", "a-controller"]);
    all_get_on(&before, &cluster).await;
    assert_eq!(cluster.pass(), [""; 0], "once");
    assert_ne!(fingerprint(&cluster), first, "clients must read it");
    // Two reissues in a row: three generations accept each other.
    let between = cluster.clone();
    cluster.now += Duration::days(1);
    cluster.reissue_before = Some(cluster.now);
    cluster.pass();
    all_get_on(&between, &cluster).await;
    all_get_on(&before, &cluster).await;
    // Old authorities are not trusted forever.
    cluster.now += Duration::days(366);
    cluster.pass();
    assert_eq!(pem::certificates(cluster.data("a-admin").get("ca.crt")).len(), 1);
    assert!(!cluster.data("a-cert-ca").contains_key(BRIDGES));
    cluster.talk("a-admin").await.unwrap();
}

#[tokio::test]
async fn what_is_lost_or_broken_is_made_anew() {
    for name in names().all() {
        for damage in ["lost", "garbage", "halves", "empty"] {
            let mut cluster = Cluster::begun();
            let other = cluster.data(if name == "a-admin" { "a-controller" } else { "a-admin" })["tls.key"].clone();
            match damage {
                "lost" => drop(cluster.secrets.remove(name)),
                "garbage" => {
                    let data = &mut cluster.secrets.get_mut(name).unwrap().data;
                    data.values_mut().for_each(|value| *value = b"garbage".to_vec());
                }
                "halves" => drop(cluster.secrets.get_mut(name).unwrap().data.insert("tls.key".to_owned(), other)),
                _ => cluster.secrets.get_mut(name).unwrap().data.clear(),
            }
            let written = cluster.pass();
            assert!(written.contains(&name.to_owned()), "{name}, {damage}: {written:?}");
            cluster.talk("a-admin").await.unwrap_or_else(|error| panic!("{name}, {damage}: {error}"));
            cluster.talk("a-controller").await.unwrap();
            assert_eq!(cluster.pass(), [""; 0], "{name}, {damage}");
        }
    }
}

#[test]
fn changed_fields_are_restored_and_another_user_gets_another_certificate() {
    let mut cluster = Cluster::begun();
    for (name, key) in [("a-admin", "kubeconfig"), ("a-cert-kubernetes", "ca.crt"), ("a-cert-ca", "ca.crt")] {
        let before = cluster.data(name).clone();
        cluster.secrets.get_mut(name).unwrap().data.insert(key.to_owned(), b"other".to_vec());
        assert_eq!(cluster.pass(), [name], "{key}");
        assert_eq!(cluster.data(name), &before);
    }
    cluster.user.name = "system:other".to_owned();
    assert_eq!(cluster.pass(), ["a-controller"]);
    cluster.user.group = None;
    assert_eq!(cluster.pass(), ["a-controller"]);
}

/// From OpenSSL: RSA in PKCS #1, as the Go implementation and others write it.
const THEIRS: [(&str, &str); 2] = [("tls.crt", include_str!("theirs.crt")), ("tls.key", include_str!("theirs.key"))];

fn theirs(pairs: &[(&str, &str)]) -> Stored {
    let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    Stored { data, is_ours: false }
}

#[tokio::test]
async fn an_external_authority_signs_and_stays_unchanged() {
    let mut cluster = Cluster::new();
    cluster.now = OffsetDateTime::from_unix_timestamp(1_900_000_000).unwrap();
    cluster.secrets.insert("a-cert-ca".to_owned(), theirs(&THEIRS));
    assert_eq!(cluster.pass(), [ACCOUNTS, "a-cert-kubernetes", "a-admin", "a-controller"]);
    cluster.talk("a-controller").await.unwrap();
    let issuer = cluster.certificate("a-admin").read(|parsed| parsed.issuer().to_string());
    assert!(issuer.contains("somebody's CA"), "{issuer}");
    let before = cluster.clone();
    cluster.now += Duration::days(300);
    cluster.reissue_before = Some(cluster.now);
    assert_eq!(cluster.pass(), [ACCOUNTS, "a-cert-kubernetes", "a-admin", "a-controller"]);
    all_get_on(&before, &cluster).await;
    // An unusable authority is reported, and not replaced.
    cluster.secrets.insert("a-cert-ca".to_owned(), theirs(&THEIRS[..1]));
    let said = cluster.issue().unwrap_err().to_string();
    assert!(said.contains("a-cert-ca") && said.contains("tls.key"), "{said}");
    cluster.secrets.insert("a-cert-ca".to_owned(), theirs(&THEIRS));
    cluster.now = OffsetDateTime::from_unix_timestamp(20_000_000_000).unwrap();
    let said = cluster.issue().unwrap_err().to_string();
    assert!(said.contains("expired"), "{said}");
}

#[test]
fn with_external_certificates_the_authority_needs_no_key() {
    let mut cluster = Cluster::new();
    let pair = [("tls.crt", THEIRS[0].1), ("tls.key", THEIRS[1].1), ("ca.crt", THEIRS[0].1), ("kubeconfig", "k")];
    for name in names().all() {
        cluster.secrets.insert(name.to_owned(), theirs(&pair));
    }
    cluster.secrets.insert("a-cert-ca".to_owned(), theirs(&pair[..1]));
    assert!(cluster.issue().unwrap().secrets.is_empty());
    cluster.now = OffsetDateTime::from_unix_timestamp(20_000_000_000).unwrap();
    assert_eq!(cluster.issue().unwrap().expired, ["a-cert-kubernetes", "a-admin", "a-controller"]);
    cluster.secrets.insert("a-controller".to_owned(), theirs(&pair[..3]));
    let said = cluster.issue().unwrap_err().to_string();
    assert!(said.contains("a-controller") && said.contains("kubeconfig"), "{said}");
}
