//! A controller of heavens for Jobs. `docs/write-a-heaven.md` explains it.

mod control;
mod kind;
mod plan;

use trishanku_framework::crd::Definitions;
use trishanku_framework::{Controller, Manager, stop_signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        return Ok(Definitions::of::<kind::JobHeaven>().print()?);
    }
    let manager = Manager::new(kube::Config::infer().await?);
    let reconciler = control::JobHeavenReconciler::new(&manager);
    let controller = Controller::new("job-heaven", reconciler).owns_kind(&plan::jobs());
    manager.controller(controller).run(stop_signal()?).await?;
    Ok(())
}
