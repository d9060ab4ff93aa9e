//! A controller that keeps the water in tanks at the desired level. `docs/write-a-controller.md` builds it step by step.

mod control;
mod plan;
mod tank;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::crd::Definitions;
use trishanku_framework::serve::{Addresses, Server};
use trishanku_framework::{Controller, Manager, lease, stop_signal, telemetry};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        return Ok(Definitions::of::<tank::Tank>().print()?);
    }
    let variable = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (probes, metrics) = (variable("PROBES", ":8081").parse()?, variable("METRICS", ":8080").parse()?);
    let telemetry = telemetry::Settings::new("watertank").init()?;
    let server = Server::bind(&Addresses { probes, metrics, ..Addresses::default() }).await?;
    let manager = Manager::new(kube::Config::infer().await?)
        .telemetry(&telemetry)
        .serve(server)
        .leader_election(lease::Settings::new(variable("POD_NAMESPACE", "default"), "watertank"));
    let reconciler = control::TankReconciler::new(&manager);
    manager.controller(Controller::new("tank", reconciler).owns::<ConfigMap>()).run(stop_signal()?).await?;
    telemetry.end().await;
    Ok(())
}
