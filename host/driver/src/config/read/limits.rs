use std::time::Duration;

use admittance::SandboxConfig;
use admittance_definitions::{Mistakes, document::Node};

use super::{GIB, HOUR, KIB, duration, if_there, or};
use crate::config::Limits;

pub(super) fn limits(node: &Node<'_>, default: Limits, mistakes: &mut Mistakes) -> Option<Limits> {
    let mut fields = node.object(mistakes)?;
    let body = or(
        fields.optional("body"),
        default.body,
        mistakes,
        |node, mistakes| usize::try_from(node.size(KIB..=GIB, mistakes)?).ok(),
    );
    let minimum_rate = or(
        fields.optional("minimumRate"),
        default.minimum_rate,
        mistakes,
        |node, mistakes| node.size(0..=GIB, mistakes),
    );
    let count = |node: &Node<'_>, mistakes: &mut Mistakes| node.integer(1..=1_000_000_usize, mistakes);
    let concurrency = or(
        fields.optional("concurrency"),
        default.concurrency,
        mistakes,
        count,
    );
    let streams = or(fields.optional("streams"), default.streams, mistakes, count);
    let connections = if_there(fields.optional("connections"), mistakes, count);
    let idle_timeout = duration(&mut fields, "idleTimeout", default.idle_timeout, mistakes);
    let stream_idle_timeout = duration(
        &mut fields,
        "streamIdleTimeout",
        default.stream_idle_timeout,
        mistakes,
    );
    let body_timeout = duration(&mut fields, "bodyTimeout", default.body_timeout, mistakes);
    let header_timeout = duration(&mut fields, "headerTimeout", default.header_timeout, mistakes);
    let request_timeout = duration(&mut fields, "requestTimeout", default.request_timeout, mistakes);
    let shutdown_delay = or(
        fields.optional("shutdownDelay"),
        default.shutdown_delay,
        mistakes,
        |node, mistakes| node.duration(Duration::ZERO..=HOUR, mistakes),
    );
    let shutdown_timeout = duration(&mut fields, "shutdownTimeout", default.shutdown_timeout, mistakes);
    fields.finish(mistakes);
    Some(Limits {
        body: body?,
        body_timeout: body_timeout?,
        header_timeout: header_timeout?,
        idle_timeout: idle_timeout?,
        minimum_rate: minimum_rate?,
        concurrency: concurrency?,
        streams: streams?,
        stream_idle_timeout: stream_idle_timeout?,
        connections: connections?.or(default.connections),
        request_timeout: request_timeout?,
        shutdown_delay: shutdown_delay?,
        shutdown_timeout: shutdown_timeout?,
    })
}

pub(super) fn sandbox(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<SandboxConfig> {
    let mut config = SandboxConfig::default();
    let mut fields = node.object(mistakes)?;
    if let Some(node) = fields.optional("callsInFlight") {
        config.calls_in_flight = node.integer(1..=10_000, mistakes)?;
    }
    if let Some(node) = fields.optional("memory") {
        // The largest limit that a stage may set.
        config.memory_limit_max = usize::try_from(node.size(1024 * KIB..=4 * GIB, mistakes)?).ok()?;
    }
    if let Some(node) = fields.optional("compileMemory") {
        config.compile_memory = node.size(64 * 1024 * KIB..=64 * GIB, mistakes)?;
    }
    if let Some(node) = fields.optional("compileTime") {
        config.compile_time = node.duration(Duration::from_secs(1)..=HOUR, mistakes)?;
        config.prepare_timeout = config.compile_time.saturating_mul(3);
    }
    fields.finish(mistakes);
    Some(config)
}
