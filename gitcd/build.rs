//! Compiles the etcd v3 API without `protoc`: `protox` is a protobuf compiler in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/rpc.proto"];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure()
        // Keys and values are shared by reference count from the socket's buffer to the store.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
