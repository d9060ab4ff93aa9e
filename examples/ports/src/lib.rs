//! Three controllers of others, written anew on the framework. `docs/ported-controllers.md` compares them with their originals.

pub mod configmap_generator;
pub mod cron_job;
pub mod hello_world;
