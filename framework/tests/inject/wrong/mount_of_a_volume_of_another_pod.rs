use trishanku_framework::inject::{EmptyDir, Pod};

fn build<'a, 'b>(one: &mut Pod<'a>, other: &mut Pod<'b>) {
    let repository = one.volume("repo", EmptyDir::new());
    other.sidecar("gitcd", "gitcd:1").mount(&repository, "/repo").add();
}

fn main() {}
