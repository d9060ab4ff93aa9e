//! `configmap-generator` runs the controller, and reconciles all objects when a line is entered; `configmap-generator crd` prints
//! its CRD.

use std::io::BufRead as _;
use std::process::ExitCode;

use futures::channel::mpsc;
use ports::configmap_generator::{ConfigMapGenerator, NAME, all_on, controller};
use trishanku_framework::crd::Definitions;
use trishanku_framework::{Manager, Program};

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new(NAME).definitions(Definitions::of::<ConfigMapGenerator>());
    let add = async |manager: Manager| {
        let (mut lines, entered) = mpsc::channel(1);
        // A read of standard input cannot be cancelled: a thread does not keep the runtime from its end.
        std::thread::spawn(move || {
            for _line in std::io::stdin().lock().lines().map_while(Result::ok) {
                // If the channel is full, all objects are about to be reconciled anyway.
                let _sent = lines.try_send(());
            }
        });
        let keys = all_on(entered, manager.caches().cache::<ConfigMapGenerator>());
        Ok(manager.controller(controller().reconcile_on(keys)))
    };
    program.run(add).await
}
