use trishanku_framework::inject::{EmptyDir, Pod};

fn build(pod: &mut Pod<'_>) {
    let repository = EmptyDir::new();
    pod.sidecar("gitcd", "gitcd:1").mount(&repository, "/repo").add();
}

fn main() {}
