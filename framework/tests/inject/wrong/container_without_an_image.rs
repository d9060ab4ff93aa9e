use trishanku_framework::inject::Pod;

fn build(pod: &mut Pod<'_>) {
    pod.sidecar("gitcd").add();
}

fn main() {}
