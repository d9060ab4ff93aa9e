//! `hello-world` runs the operator; `hello-world crd` prints its CRD.

use std::process::ExitCode;

use ports::hello_world::{HelloCluster, NAME, controller};
use trishanku_framework::Program;
use trishanku_framework::crd::Definitions;

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new(NAME).definitions(Definitions::of::<HelloCluster>());
    program.run(async |manager| Ok(manager.controller(controller()))).await
}
