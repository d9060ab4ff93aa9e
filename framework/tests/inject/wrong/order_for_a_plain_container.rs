use trishanku_framework::inject::Pod;

fn build(pod: &mut Pod<'_>) {
    let cloned = pod.init("git-pre", "gitcd:1").add();
    pod.container("gitcd", "gitcd:1").after(&cloned).add();
}

fn main() {}
