//! `configmap-generator` runs the controller, and reconciles all objects when a line is entered; `configmap-generator crd` prints
//! its CRD.

use std::io::BufRead as _;
use std::process::ExitCode;

use futures::channel::mpsc;
use ports::configmap_generator::{ConfigMapGenerator, NAME, controller};
use trishanku_framework::Program;

#[tokio::main]
async fn main() -> ExitCode {
    let (mut lines, entered) = mpsc::channel(1);
    // A read of standard input cannot be cancelled: a thread does not keep the runtime from its end.
    std::thread::spawn(move || {
        for _line in std::io::stdin().lock().lines().map_while(Result::ok) {
            // If the channel is full, all objects are about to be reconciled anyway.
            let _sent = lines.try_send(());
        }
    });
    let generators = controller().reconcile_all_on(entered);
    Program::new(NAME).crd::<ConfigMapGenerator>().controller(generators).run().await
}
