//! Hosts with TLS certificates.

use std::path::{Path, PathBuf};

use gitcd::pull::status::Condition;

use crate::authority::Authority;
use crate::host::Host;
use crate::secrets::noting_git;
use crate::support::build::put;
use crate::support::{Kind, Launch, free_port};
use crate::world::{Following, ONE, OTHER, holds};

struct World {
    host: Host,
    trusted: PathBuf,
    other: PathBuf,
}

async fn world() -> World {
    let host = Host::prepare("https");
    let write = |name: &str, text: &str| {
        let path = host.folder().join(name);
        std::fs::write(&path, text).expect("the temporary folder is writable");
        path
    };
    let (trusted, other) = (Authority::new("trusted"), Authority::new("other"));
    let pair = trusted.issue("host");
    let flags = [
        "--anonymous=own".to_owned(),
        format!("--tls-cert={}", write("host.crt", &pair.cert).display()),
        format!("--tls-key={}", write("host.key", &pair.key).display()),
    ];
    let (trusted, other) = (write("trusted.pem", trusted.pem()), write("other.pem", other.pem()));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    World { host: host.running(&flags).await, trusted, other }
}

#[tokio::test]
async fn an_authority_is_trusted_by_this_process_and_by_git() {
    let World { host, trusted, .. } = world().await;
    let (upstream, trusted) = (host.make(), trusted.display().to_string());
    let (log, path) = noting_git(host.folder());
    let native = Following::new(&host.url()).variable("SSL_CERT_FILE", &trusted).variable("PATH", "/nowhere");
    let native = native.start().await;
    native.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    assert!(!log.exists());
    let program = Following::new(&host.url()).variable("PATH", &path).setting("http.sslCAInfo", &trusted);
    let program = program.start().await;
    program.has(ONE, "1").await;
    program.put(OTHER, "2").await;
    native.has(OTHER, "2").await;
    assert!(std::fs::read_to_string(&log).unwrap().contains("ls-remote"), "git must have been run");
    program.is(Condition::Synced).await;
    native.is(Condition::Synced).await;
    upstream.fsck();
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_reported_until_it_is_trusted() {
    let World { host, trusted, other } = world().await;
    let upstream = host.make();
    let file = host.folder().join("roots.pem");
    std::fs::copy(&other, &file).unwrap();
    let roots = file.display().to_string();
    let native = Following::new(&host.url()).variable("SSL_CERT_FILE", &roots).start().await;
    let program = Following::new(&host.url()).setting("http.sslCAInfo", &roots).start().await;
    for (follower, key) in [(&native, ONE), (&program, OTHER)] {
        follower.put(key, "kept").await;
        follower.fails_with(Condition::Unreachable, &["ertificate"]).await;
    }
    assert!(
        !upstream.run(&["rev-parse", "--verify", "--quiet", "main"]).status.success(),
        "nothing must be pushed to an untrusted host"
    );
    std::fs::copy(&trusted, &file).unwrap();
    for (follower, key) in [(&native, OTHER), (&program, ONE)] {
        follower.has(key, "kept").await;
        follower.is(Condition::Synced).await;
    }
}

#[tokio::test]
async fn an_authority_is_trusted_by_a_flag_and_by_a_secret_besides_those_of_the_machine() {
    let World { host, trusted, other } = world().await;
    let (upstream, folder) = (host.make(), host.folder().join("secret"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(&trusted, folder.join("ca.crt")).unwrap();
    let (by_flag, by_secret) =
        (format!("--remote-cacert={}", trusted.display()), format!("--credentials-folder={}", folder.display()));
    let (log, path) = noting_git(host.folder());
    let mut last = 0;
    for (key, flag) in [(ONE, &by_flag), (OTHER, &by_secret)] {
        let native = Following::new(&host.url()).argument(flag).variable("PATH", "/nowhere").start().await;
        last += 1;
        native.put(key, &last.to_string()).await;
        holds(&upstream, key, &last.to_string()).await;
        native.is(Condition::Synced).await;
        let program = Following::new(&host.url()).argument(flag).setting("http.userAgent", "special");
        let program = program.variable("PATH", &path).start().await;
        program.has(key, &last.to_string()).await;
        last += 1;
        program.put(key, &last.to_string()).await;
        holds(&upstream, key, &last.to_string()).await;
        program.is(Condition::Synced).await;
    }
    assert!(std::fs::read_to_string(&log).unwrap().contains("sslCAInfo="), "git must have been run");
    // The authorities of the machine, here by its variable, stay trusted.
    let besides = format!("--remote-cacert={}", other.display());
    let machine = trusted.display().to_string();
    for special in [false, true] {
        let following = Following::new(&host.url()).argument(&besides).variable("SSL_CERT_FILE", &machine);
        let following = if special { following.setting("http.userAgent", "special") } else { following };
        following.start().await.has(OTHER, &last.to_string()).await;
    }
    upstream.fsck();
}

#[tokio::test]
async fn a_replaced_authority_counts_from_the_next_exchange() {
    let World { host, trusted, other } = world().await;
    let upstream = host.make();
    let file = host.folder().join("ca.crt");
    std::fs::write(&file, "no certificate").unwrap();
    let flag = format!("--remote-cacert={}", file.display());
    let native = Following::new(&host.url()).argument(&flag).start().await;
    let program = Following::new(&host.url()).argument(&flag).setting("http.userAgent", "special").start().await;
    for (follower, key) in [(&native, ONE), (&program, OTHER)] {
        follower.put(key, "kept").await;
        follower.fails_with(Condition::Failed, &["ca.crt", "no certificate in PEM"]).await;
    }
    std::fs::copy(&other, &file).unwrap();
    for follower in [&native, &program] {
        follower.fails_with(Condition::Unreachable, &["add its issuer to", "ca.crt"]).await;
    }
    std::fs::copy(&trusted, &file).unwrap();
    for (follower, key) in [(&native, OTHER), (&program, ONE)] {
        follower.has(key, "kept").await;
        follower.is(Condition::Synced).await;
    }
    upstream.fsck();
}

/// Replaces a file at once, as kubelet does with those of a Secret.
fn replace(path: &Path, content: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, content).expect("the temporary folder is writable");
    std::fs::rename(next, path).expect("the temporary folder is writable");
}

#[tokio::test]
async fn the_host_of_a_served_branch_and_a_follower_have_the_files_of_their_secrets() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let file = |name: &str| folder.path().join(name);
    let (port, first) = (free_port(), Authority::new("first"));
    let issue = |authority: &Authority| {
        let pair = authority.issue("host");
        replace(&file("tls.key"), &pair.key);
        replace(&file("tls.crt"), &pair.cert);
    };
    issue(&first);
    let tokens = "- {user: follower, token: s3cret, rights: [{repository: '**', access: read}]}\n";
    std::fs::write(file("tokens.yaml"), tokens).expect("the temporary folder is writable");
    let flag = |name: &str, path: &str| format!("--host-{name}={}", file(path).display());
    let server = Launch::new(Kind::Gitcd)
        .argument(format!("--host-listen-urls=https://127.0.0.1:{port}"))
        .argument(flag("tokens", "tokens.yaml"))
        .argument(flag("tls-cert", "tls.crt"))
        .argument(flag("tls-key", "tls.key"));
    let server = server.start().await;
    let client = server.client().await;
    let secret = file("secret");
    std::fs::create_dir(&secret).expect("the temporary folder is writable");
    for (name, content) in [
        ("username", "follower"),
        ("password", "s3cret"),
        ("url", &*format!("https://127.0.0.1:{port}")),
        ("ca.crt", first.pem()),
    ] {
        replace(&secret.join(name), content);
    }
    let following = || {
        Following::new(&format!("https://127.0.0.1:{port}/repo.git"))
            .without_pushes()
            .argument(format!("--credentials-folder={}", secret.display()))
    };
    let followers = [following().start().await, following().setting("http.userAgent", "special").start().await];
    client.put(put(ONE, "1")).await.ok();
    for follower in &followers {
        follower.has(ONE, "1").await;
        follower.is(Condition::Synced).await;
    }
    // Another authority issues the next certificate; nothing restarts.
    let second = Authority::new("second");
    issue(&second);
    client.put(put(ONE, "2")).await.ok();
    followers[1].fails_with(Condition::Unreachable, &["add its issuer to"]).await;
    replace(&secret.join("ca.crt"), second.pem());
    for follower in &followers {
        follower.has(ONE, "2").await;
        follower.is(Condition::Synced).await;
    }
}
