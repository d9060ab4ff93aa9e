//! `rain-gauge` runs the controller; `rain-gauge crd` prints its CRD.

use std::process::ExitCode;

use trishanku_framework::Program;
use trishanku_framework::crd::Definitions;

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new(rain_gauge::NAME).definitions(Definitions::of::<rain_gauge::RainGauge>());
    program.run(async |manager| Ok(manager.controller(rain_gauge::controller()))).await
}
