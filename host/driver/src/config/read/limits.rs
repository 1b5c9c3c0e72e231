use std::time::Duration;

use admittance::SandboxConfig;
use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
};

use admittance_net::budget::BodyBudget;

use super::{GIB, HOUR, KIB, MIB, duration};
use crate::config::Limits;

pub(super) fn limits(node: &Node<'_>, default: &Limits, mistakes: &mut Mistakes) -> Option<Limits> {
    let mut fields = node.object(mistakes)?;
    let count = readers::integer(1..=1_000_000);
    let delay = readers::duration(Duration::ZERO..=HOUR);
    let body = fields.get("body", default.body, readers::size(KIB..=GIB), mistakes);
    let least = u64::try_from(BodyBudget::least(body)).unwrap_or(GIB);
    let memory = readers::size(least..=1024 * GIB);
    let limits = Limits {
        body,
        body_memory: fields
            .get_optional("bodyMemory", memory, mistakes)
            .or(default.body_memory),
        body_timeout: fields.get("bodyTimeout", default.body_timeout, duration, mistakes),
        header_timeout: fields.get("headerTimeout", default.header_timeout, duration, mistakes),
        idle_timeout: fields.get("idleTimeout", default.idle_timeout, duration, mistakes),
        minimum_rate: fields.get(
            "minimumRate",
            default.minimum_rate,
            readers::size(0..=GIB),
            mistakes,
        ),
        concurrency: fields.get("concurrency", default.concurrency, &count, mistakes),
        streams: fields.get("streams", default.streams, &count, mistakes),
        stream_idle_timeout: fields.get(
            "streamIdleTimeout",
            default.stream_idle_timeout,
            duration,
            mistakes,
        ),
        connections: fields
            .get_optional("connections", &count, mistakes)
            .or(default.connections),
        request_timeout: fields.get("requestTimeout", default.request_timeout, duration, mistakes),
        shutdown_delay: fields.get("shutdownDelay", default.shutdown_delay, delay, mistakes),
        shutdown_timeout: fields.get("shutdownTimeout", default.shutdown_timeout, duration, mistakes),
    };
    fields.finish(mistakes);
    Some(limits)
}

pub(super) fn sandbox(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SandboxConfig> {
    let mut fields = node.object(mistakes)?;
    let mut config = SandboxConfig::default();
    let calls = readers::integer(1..=10_000);
    config.calls_in_flight = fields.get("callsInFlight", config.calls_in_flight, calls, mistakes);
    // A stage may set no larger limit than this.
    let memory = readers::size(MIB..=4 * GIB);
    config.memory_limit_max = fields.get("memory", config.memory_limit_max, memory, mistakes);
    let memory = readers::size(64 * MIB..=64 * GIB);
    config.compile_memory = fields.get("compileMemory", config.compile_memory, memory, mistakes);
    let time = readers::duration(Duration::from_secs(1)..=HOUR);
    if let Some(time) = fields.get_optional("compileTime", &time, mistakes) {
        config.compile_time = time;
        config.prepare_timeout = config.prepare_timeout.max(time.saturating_mul(10));
    }
    config.configure_timeout = fields.get("configureTime", config.configure_timeout, &time, mistakes);
    fields.finish(mistakes);
    Some(config)
}
