use trishanku_framework::inject::Pod;

fn build(pod: &mut Pod<'_>) {
    let one = pod.sidecar("one", "one:1");
    let other = pod.sidecar("other", "other:1");
    one.add();
    other.add();
}

fn main() {}
