use trishanku_framework::inject::{EmptyDir, Injector};

fn main() {
    let mut repository = None;
    let injector =
        Injector::new(Default::default()).with(|pod| repository = Some(pod.volume("repo", EmptyDir::new())));
    drop(injector);
}
