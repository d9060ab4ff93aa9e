//! `rain-gauge` runs the controller; `rain-gauge crd` prints its CRD.

use std::process::ExitCode;

use trishanku_framework::Program;

#[tokio::main]
async fn main() -> ExitCode {
    Program::new(rain_gauge::NAME).crd::<rain_gauge::RainGauge>().controller(rain_gauge::controller()).run().await
}
