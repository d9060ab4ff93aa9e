//! Groups of flags with etcd's names and defaults.

use std::time::Duration;

use anyhow::bail;
use gitcd_engine::compactor::Retention;
use gitcd_server::config::ConfigError;

use super::super::limits::Connections;
use super::{boolean, duration};
use crate::{server, telemetry};

/// Settings of connections; flags and defaults are etcd's.
#[derive(Debug, clap::Args)]
pub(super) struct Transport {
    /// Most concurrent requests and streams on a connection
    #[arg(long, env = "GITCD_MAX_CONCURRENT_STREAMS", default_value_t = u32::MAX, value_name = "N")]
    max_concurrent_streams: u32,
    /// Shortest time between two pings of a client; has no effect, since pings are always answered
    #[arg(
        long,
        env = "GITCD_GRPC_KEEPALIVE_MIN_TIME",
        default_value = "5s",
        value_parser = duration::parse,
        value_name = "DURATION"
    )]
    grpc_keepalive_min_time: Duration,
    /// Interval of keepalive pings to clients; 0 disables them
    #[arg(
        long,
        env = "GITCD_GRPC_KEEPALIVE_INTERVAL",
        default_value = "2h",
        value_parser = duration::parse,
        value_name = "DURATION"
    )]
    grpc_keepalive_interval: Duration,
    /// Time to answer a ping before the connection is closed; 0 disables pings
    #[arg(
        long,
        env = "GITCD_GRPC_KEEPALIVE_TIMEOUT",
        default_value = "20s",
        value_parser = duration::parse,
        value_name = "DURATION"
    )]
    grpc_keepalive_timeout: Duration,
    #[command(flatten)]
    connections: Connections,
}

impl Transport {
    pub(super) fn settings(&self) -> Result<server::Transport, ConfigError> {
        Ok(server::Transport {
            max_concurrent_streams: self.max_concurrent_streams,
            keepalive_interval: self.grpc_keepalive_interval,
            keepalive_timeout: self.grpc_keepalive_timeout,
            connections: self.connections.limits()?,
            ..server::Transport::default()
        })
    }
}

/// Automatic compaction; flags and defaults are etcd's.
#[derive(Debug, clap::Args)]
pub(super) struct Compaction {
    /// What --auto-compaction-retention counts
    #[arg(long, env = "GITCD_AUTO_COMPACTION_MODE", value_enum, default_value_t, value_name = "WHAT")]
    auto_compaction_mode: CompactionMode,
    /// How much history to keep for clients: a duration, in hours if without a unit, or a number of revisions; 0 for all.
    /// Compacted history stays in Git
    #[arg(long, env = "GITCD_AUTO_COMPACTION_RETENTION", default_value = "0", value_name = "RETENTION")]
    auto_compaction_retention: String,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum CompactionMode {
    /// Time
    #[default]
    Periodic,
    /// Revisions
    Revision,
}

impl Compaction {
    pub(super) fn retention(&self) -> anyhow::Result<Option<Retention>> {
        let text = &self.auto_compaction_retention;
        let parsed = match self.auto_compaction_mode {
            CompactionMode::Periodic => duration::parse_hours(text).map(Retention::Period),
            CompactionMode::Revision => match text.parse() {
                Ok(revisions) if revisions >= 0 => Ok(Retention::Revisions(revisions)),
                _ => Err("not a number of revisions".to_owned()),
            },
        };
        match parsed {
            Ok(Retention::Period(Duration::ZERO) | Retention::Revisions(0)) => Ok(None),
            Ok(retention) => Ok(Some(retention)),
            Err(problem) => bail!("--auto-compaction-retention: {text:?}: {problem}"),
        }
    }
}

/// Traces for a collector; flags and defaults are etcd's. OpenTelemetry's environment variables apply, too.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_field_names,
    clippy::doc_markdown,
    reason = "the fields and their comments are the flags and their help"
)]
pub(super) struct Tracing {
    /// Export traces of requests over OTLP (gRPC). OTEL_TRACES_EXPORTER=otlp and OTEL_EXPORTER_OTLP_ENDPOINT do so too
    #[arg(
        long,
        env = "GITCD_ENABLE_DISTRIBUTED_TRACING",
        alias = "experimental-enable-distributed-tracing",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        value_parser = boolean,
        value_name = "BOOL"
    )]
    enable_distributed_tracing: bool,
    /// The collector [default: OTEL_EXPORTER_OTLP_ENDPOINT, or localhost:4317]
    #[arg(
        long,
        env = "GITCD_DISTRIBUTED_TRACING_ADDRESS",
        alias = "experimental-distributed-tracing-address",
        value_name = "ADDRESS"
    )]
    distributed_tracing_address: Option<String>,
    /// Name of this service in traces [default: OTEL_SERVICE_NAME, or gitcd]
    #[arg(
        long,
        env = "GITCD_DISTRIBUTED_TRACING_SERVICE_NAME",
        alias = "experimental-distributed-tracing-service-name",
        value_name = "NAME"
    )]
    distributed_tracing_service_name: Option<String>,
    /// Identifies this instance among services of the same name
    #[arg(
        long,
        env = "GITCD_DISTRIBUTED_TRACING_INSTANCE_ID",
        alias = "experimental-distributed-tracing-instance-id",
        value_name = "ID"
    )]
    distributed_tracing_instance_id: Option<String>,
    /// How many of a million requests start a trace here [default: OTEL_TRACES_SAMPLER, or 0]. Traces that a client started are always exported
    #[arg(
        long,
        env = "GITCD_DISTRIBUTED_TRACING_SAMPLING_RATE",
        alias = "experimental-distributed-tracing-sampling-rate",
        value_name = "N"
    )]
    distributed_tracing_sampling_rate: Option<u32>,
}

impl Tracing {
    pub(super) fn settings(&self) -> telemetry::Settings {
        telemetry::Settings {
            enabled: self.enable_distributed_tracing,
            address: self.distributed_tracing_address.clone(),
            service_name: self.distributed_tracing_service_name.clone(),
            instance_id: self.distributed_tracing_instance_id.clone(),
            sampling_per_million: self.distributed_tracing_sampling_rate,
        }
    }
}
