//! `gitcd migrate export`: a branch becomes a snapshot of etcd.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use gitcd_engine::backup::{self, Backup};

use super::TemporaryFile;
use super::client::{self, EtcdClient};
use crate::cli::progress::Step;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file to write, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: client::Flags,
    /// Read a snapshot that `etcdctl snapshot save` took of a gitcd, instead of connecting to one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["endpoints", "cacert", "cert", "key"])]
    snapshot: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = args.file.display();
    ensure!(!args.file.try_exists()?, "{file} exists already");
    let partial = TemporaryFile::beside(&args.file, ".part")?;
    let downloaded = TemporaryFile::beside(&args.file, ".gitcd")?;
    let snapshot = if let Some(snapshot) = &args.snapshot {
        snapshot
    } else {
        let save = async { EtcdClient::connect(&args.server).await?.snapshot(&downloaded.0).await };
        crate::cli::runtime()?.block_on(save)?;
        &downloaded.0
    };
    let backup = {
        let _shown = Step::start("reading the snapshot");
        Backup::read(snapshot)?
    };
    let written = {
        let _shown = Step::start("writing the snapshot of etcd");
        write(&backup, &partial.0)
    };
    written.with_context(|| format!("cannot write {file}"))?;
    publish(&partial.0, &args.file).with_context(|| format!("cannot write {file}"))?;
    let header = &backup.header;
    trishanku_stdio::println!(
        "wrote {file}: revision {}, {} keys, {} leases; restore it with `etcdutl snapshot restore {file}`",
        header.revision,
        backup.newest().len(),
        backup.leases.len()
    );
    Ok(())
}

fn write(backup: &Backup, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(gitcd_core::durable::PRIVATE_FILE).open(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    backup::write_etcd(backup, &mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// Gives a complete file its name, unless there is one of this name by now.
fn publish(partial: &Path, path: &Path) -> anyhow::Result<()> {
    std::fs::hard_link(partial, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(gitcd_core::durable::sync(folder)?)
}
