use trishanku_framework::inject::{Pod, Probe};

fn build<'a, 'b>(one: &mut Pod<'a>, other: &mut Pod<'b>) {
    let mut gitcd = one.sidecar("gitcd", "gitcd:1");
    let client = gitcd.port("client", 2479);
    other.sidecar("gitcd", "gitcd:1").startup(Probe::tcp(&client)).add();
}

fn main() {}
