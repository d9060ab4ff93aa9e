//! `hello-world` runs the operator; `hello-world crd` prints its CRD.

use std::process::ExitCode;

use ports::hello_world::{HelloCluster, NAME, controller};
use trishanku_framework::Program;

#[tokio::main]
async fn main() -> ExitCode {
    Program::new(NAME).crd::<HelloCluster>().controller(controller()).run().await
}
