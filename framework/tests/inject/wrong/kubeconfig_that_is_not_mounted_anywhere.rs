use trishanku_framework::inject::{Pod, SecretRef, Users};

fn build(pod: &mut Pod<'_>) {
    pod.give_kubeconfig(Users::All, &SecretRef::named("app").key("kubeconfig"));
}

fn main() {}
