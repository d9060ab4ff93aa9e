//! `rain-gauge` runs the controller; `rain-gauge crd` prints its CRD.

use trishanku_framework::crd::Definitions;
use trishanku_framework::serve::{Addresses, Server};
use trishanku_framework::{stop_signal, telemetry};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        return Ok(Definitions::of::<rain_gauge::RainGauge>().print()?);
    }
    let variable = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (probes, metrics) = (variable("PROBES", ":8081").parse()?, variable("METRICS", ":8080").parse()?);
    let telemetry = telemetry::Settings::new("rain-gauge").init()?;
    let server = Server::bind(&Addresses { probes, metrics, ..Addresses::default() }).await?;
    let config = kube::Config::infer().await?;
    let manager = rain_gauge::manager(config, &variable("POD_NAMESPACE", "default"));
    manager.telemetry(&telemetry).serve(server).run(stop_signal()?).await?;
    telemetry.end().await;
    Ok(())
}
