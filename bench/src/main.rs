//! Measures gitcd side by side with etcd.
fn main() {}
