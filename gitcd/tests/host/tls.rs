//! Client certificates instead of tokens.

use std::path::PathBuf;

use super::authority::Authority;
use super::git::Repository;
use super::process::Host;

#[test]
fn the_name_in_a_certificate_has_the_rights_of_its_entry() {
    let host = Host::prepare(&["--listen-urls=https://127.0.0.1:0"]);
    let served = Repository::init_bare(&host.root().join("a.git"));
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let write = |name: &str, content: &str| {
        let path = host.folder().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let pair = |name: &str, authority: &Authority| {
        let pair = authority.issue(name);
        (write(&format!("{name}.crt"), &pair.cert), write(&format!("{name}.key"), &pair.key))
    };
    let (cert, key) = pair("host", &servers);
    let (server_ca, client_ca) = (write("servers.pem", servers.pem()), write("clients.pem", clients.pem()));
    let tokens = write(
        "tokens.yaml",
        "- {user: heaven, rights: [{repository: a, access: own}]}\n\
         - {user: robot, token: secret, rights: [{repository: a, access: own}]}\n",
    );
    let (heaven, robot) = (pair("heaven", &clients), pair("robot", &clients));
    let argument = |flag: &str, path: &PathBuf| format!("--{flag}={}", path.display());
    let arguments = [
        argument("tls-cert", &cert),
        argument("tls-key", &key),
        argument("tls-trusted-ca-certs", &client_ca),
        argument("tokens", &tokens),
    ];
    let mut host = arguments.into_iter().fold(host, Host::argument);
    host.restart();
    let url = host.url("a").replace("http://", "https://");
    let options = |(cert, key): &(PathBuf, PathBuf)| {
        [("sslCAInfo", &server_ca), ("sslCert", cert), ("sslKey", key)]
            .map(|(name, path)| format!("http.{name}={}", path.display()))
    };
    let clone = |who: &(PathBuf, PathBuf), folder: &str| {
        let options = options(who);
        let options: Vec<_> = options.iter().flat_map(|option| ["-c", option]).collect();
        Repository::try_clone(&url, &host.folder().join(folder), &options)
    };
    let cloned = clone(&heaven, "work");
    assert!(cloned.status.success(), "{cloned:?}");
    let work = Repository::at(&host.folder().join("work"));
    work.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    work.commit("first");
    work.git(&["push", "--quiet", "origin", "main", "main:refs/gitcd/metadata/main"]);
    assert_eq!(served.id("main"), work.id("HEAD"));
    let refused = clone(&robot, "robot");
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains("403"), "a user with a token cannot use a certificate: {complaint}");
}
