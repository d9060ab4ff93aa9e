use trishanku_framework::inject::{LifecycleHook, Pod};

fn build(pod: &mut Pod<'_>) {
    pod.init("git-pre", "gitcd:1").pre_stop(LifecycleHook::exec(["true"])).add();
}

fn main() {}
