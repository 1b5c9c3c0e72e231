use std::time::Duration;

use admittance::SandboxConfig;
use admittance_definitions::document::{Node, readers};

use admittance_net::budget::BodyBudget;

use super::{GIB, HOUR, KIB, MIB, read_duration};
use crate::config::Limits;

pub(super) fn limits(node: &Node<'_>, default: &Limits) -> Option<Limits> {
    let mut fields = node.object()?;
    let count = readers::integer(1..=1_000_000);
    let delay = readers::duration(Duration::ZERO..=HOUR);
    let body = fields.get("body", default.body, readers::size(KIB..=GIB));
    let min_memory = u64::try_from(BodyBudget::smallest_for(body)).unwrap_or(GIB);
    let memory = readers::size(min_memory..=1024 * GIB);
    Some(Limits {
        body,
        body_memory: fields.get_optional("bodyMemory", memory).or(default.body_memory),
        body_timeout: fields.get("bodyTimeout", default.body_timeout, read_duration),
        header_timeout: fields.get("headerTimeout", default.header_timeout, read_duration),
        idle_timeout: fields.get("idleTimeout", default.idle_timeout, read_duration),
        minimum_rate: fields.get("minimumRate", default.minimum_rate, readers::size(0..=GIB)),
        concurrency: fields.get("concurrency", default.concurrency, &count),
        streams: fields.get("streams", default.streams, &count),
        stream_idle_timeout: fields.get("streamIdleTimeout", default.stream_idle_timeout, read_duration),
        connections: fields.get_optional("connections", &count).or(default.connections),
        request_timeout: fields.get("requestTimeout", default.request_timeout, read_duration),
        shutdown_delay: fields.get("shutdownDelay", default.shutdown_delay, delay),
        shutdown_timeout: fields.get("shutdownTimeout", default.shutdown_timeout, read_duration),
    })
}

pub(super) fn sandbox(node: &Node<'_>) -> Option<SandboxConfig> {
    let mut fields = node.object()?;
    let mut config = SandboxConfig::default();
    let calls = readers::integer(1..=10_000);
    config.calls_in_flight = fields.get("callsInFlight", config.calls_in_flight, calls);
    // A stage may set its own limit `memory`, which must be in the same range.
    config.max_memory_limit = fields.get("memory", config.max_memory_limit, readers::size(MIB..=4 * GIB));
    let memory = readers::size(64 * MIB..=64 * GIB);
    config.compile_memory = fields.get("compileMemory", config.compile_memory, memory);
    let time = readers::duration(Duration::from_secs(1)..=HOUR);
    if let Some(time) = fields.get_optional("compileTime", &time) {
        config.compile_time = time;
        config.prepare_timeout = config.prepare_timeout.max(time.saturating_mul(10));
    }
    config.configure_timeout = fields.get("configureTime", config.configure_timeout, &time);
    Some(config)
}
