use trishanku_framework::inject::Pod;

fn build<'a, 'b>(one: &mut Pod<'a>, other: &mut Pod<'b>) {
    let cloned = one.init("git-pre", "gitcd:1").add();
    other.sidecar("gitcd", "gitcd:1").after(&cloned).add();
}

fn main() {}
