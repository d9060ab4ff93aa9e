use trishanku_framework::inject::{Pod, SecretRef, Users};

fn build<'a, 'b>(one: &mut Pod<'a>, other: &mut Pod<'b>) {
    let kubeconfig = one.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig"));
    other.give_kubeconfig(Users::All, &kubeconfig.in_folder("/heaven"));
}

fn main() {}
