//! Progress of fetches that take long.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use gitcd::status::Status;

use crate::host::Host;
use crate::support::eventually;
use crate::world::{Following, commit};

/// Listens, and forwards connections; responses at 2 MiB a second.
fn slow(port: u16) -> SocketAddr {
    const PIECE: usize = 64 << 10;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    // Ends with the test process.
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            let copy = |mut from: TcpStream, mut to: TcpStream, pause: Duration| {
                let mut piece = vec![0; PIECE];
                while let Ok(bytes @ 1..) = from.read(&mut piece) {
                    if to.write_all(&piece[..bytes]).is_err() {
                        break;
                    }
                    std::thread::sleep(pause.mul_f64(bytes as f64 / PIECE as f64));
                }
                let _closed = to.shutdown(Shutdown::Write);
            };
            let (from, to) = (client.try_clone().expect("it is open"), server.try_clone().expect("it is open"));
            std::thread::spawn(move || copy(from, to, Duration::ZERO));
            std::thread::spawn(move || copy(server, client, Duration::from_millis(31)));
        }
    });
    address
}

/// Starts a host whose branch has a file of this size, which packs to a half.
async fn host(bytes: usize) -> Host {
    let host = Host::open().await;
    let repository = host.make();
    let mut state = 1_u64;
    let words = (0..bytes / 16).map(|_| {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    });
    let text: String = words.collect();
    let head = commit(&repository, "large", &repository.blob(&text), &[]);
    repository.git(&["update-ref", "refs/heads/main", &head]);
    host
}

fn prepare(folder: &Path, url: &str) -> Output {
    let repo = format!("--repo={}", folder.join("repo.git").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    let output = command.args(["prepare", &repo, &format!("--remote-url={url}")]).output();
    let output = output.expect("gitcd can be started");
    assert!(output.status.success(), "{output:?}");
    output
}

#[tokio::test]
async fn a_long_first_fetch_shows_its_progress_and_a_quick_one_does_not() {
    let large = host(20 << 20).await;
    let url = format!("http://{}/up.git", slow(large.port()));
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("the temporary folder is writable"));
    let output = prepare(folders[0].path(), &url);
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let lines: Vec<_> = said.lines().filter(|line| line.contains("fetching from origin: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("MiB, ") && lines[0].contains("MiB/s"), "{said}");
    assert!(printed.contains("continues from origin") && printed.lines().count() == 1, "{printed}");
    let output = prepare(folders[1].path(), &host(1 << 10).await.url());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn the_status_shows_a_first_fetch_while_the_server_answers() {
    let host = host(20 << 20).await;
    let url = format!("http://{}/up.git", slow(host.port()));
    let follower = Following::new(&url).without_pushes().start().await;
    let fetching = eventually("a fetch in the status", async || {
        let page = follower.server.page("/status").await;
        let status: Status = serde_json::from_str(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
        let remote = status.branches[0].remotes[0].clone();
        assert!(remote.known.seen.is_none(), "it ended unseen: {page}");
        remote.fetching.filter(|fetching| fetching.bytes > 1 << 20)
    })
    .await;
    assert!(fetching.seconds > 0.0 && fetching.commits == 0, "{fetching:?}");
    follower.put("/registry/tests/a", "{}").await;
    let shown = async || follower.server.output().contains("fetching from up: ").then_some(());
    eventually("the progress in the log", shown).await;
    let ended = async || {
        let page = follower.server.page("/status").await;
        (page.contains("\"seen\"") && !page.contains("\"fetching\"")).then_some(())
    };
    eventually("the end of the fetch", ended).await;
}
