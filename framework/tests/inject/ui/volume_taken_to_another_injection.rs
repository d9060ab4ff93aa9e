use k8s_openapi::api::core::v1::PodTemplateSpec;
use trishanku_framework::inject::{EmptyDir, Injector};

fn main() {
    let mut repository = None;
    let injector = Injector::new(PodTemplateSpec::default())
        .with(|pod| repository = Some(pod.volume("repo", EmptyDir::new())));
    drop(injector);
}
