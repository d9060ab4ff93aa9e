//! Compiles the etcd v3 API without `protoc`: `protox` is a protobuf compiler in Rust.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/auth.proto", "proto/election.proto", "proto/lock.proto", "proto/rpc.proto"];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let folder = std::env::var("OUT_DIR")?;
    std::fs::write(std::path::Path::new(&folder).join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Keys and values are shared by reference count from the socket's buffer to the store.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
