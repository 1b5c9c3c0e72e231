use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::counter;
use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor},
};

use crate::metric_names::SPANS as EXPORTED;

/// Counts the spans that wait for the collector or are being sent to it, up to a maximum.
#[derive(Debug)]
pub(super) struct SpanQueue {
    size: usize,
    waiting_count: AtomicUsize,
}

impl SpanQueue {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            waiting_count: AtomicUsize::new(0),
        }
    }

    fn try_reserve(&self) -> bool {
        let one_more = |waiting| (waiting < self.size).then_some(waiting + 1);
        self.waiting_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    fn release(&self, count: usize) {
        self.waiting_count.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Passes spans to the batch processor. Spans that exceed the limit are dropped and counted here.
#[derive(Debug)]
pub(super) struct QueuedSpans {
    processor: BatchSpanProcessor,
    queue: Arc<SpanQueue>,
}

impl QueuedSpans {
    pub(super) fn new(processor: BatchSpanProcessor, queue: Arc<SpanQueue>) -> Self {
        Self { processor, queue }
    }
}

impl SpanProcessor for QueuedSpans {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.processor.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.queue.try_reserve() {
            self.processor.on_end(span);
        } else {
            counter!(EXPORTED, "result" => "dropped").increment(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

#[derive(Debug)]
pub(super) struct CountingExporter<E> {
    exporter: E,
    queue: Arc<SpanQueue>,
}

impl<E> CountingExporter<E> {
    pub(super) fn new(exporter: E, queue: Arc<SpanQueue>) -> Self {
        Self { exporter, queue }
    }
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.queue.release(count);
        let name = if result.is_ok() { "exported" } else { "failed" };
        counter!(EXPORTED, "result" => name).increment(count as u64);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
