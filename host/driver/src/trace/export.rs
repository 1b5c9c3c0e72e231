//! Exports the spans of requests to an OpenTelemetry collector.

mod collector;
mod environment;
mod queue;

use std::{sync::Arc, time::Duration};

use admittance_net::{
    tls::{ClientTls, TlsError},
    trace::SPANS,
};
use metrics::counter;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

use self::{
    collector::CollectorClient,
    queue::{CountingExporter, QueuedSpans, SpanQueue},
};
use crate::{
    config::{TracingConfig, TracingProtocol},
    metric_names::SPANS as EXPORTED,
};

const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("{variable}: {reason}")]
    Environment { variable: &'static str, reason: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("traces cannot be exported: {0}")]
    Exporter(#[from] ExporterBuildError),
}

#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tls: ClientTls,
}

impl Traces {
    /// Starts the export of spans; returns `None` if nothing requests it. Must be called within a tokio runtime.
    pub fn start(config: Option<TracingConfig>) -> Result<Option<Self>, TracesError> {
        let Some(config) = environment::with_environment(config)? else {
            return Ok(None);
        };
        for result in ["exported", "failed", "dropped"] {
            counter!(EXPORTED, "result" => result).absolute(0);
        }
        let protocol = match config.protocol {
            TracingProtocol::HttpProtobuf => Protocol::HttpBinary,
            TracingProtocol::HttpJson => Protocol::HttpJson,
        };
        let timeout = config.timeout.unwrap_or(EXPORT_TIMEOUT);
        let tls = config.tls.clone();
        let sampling = config
            .sampling
            .map(|share| f64::from(share.parts_of_ten_thousand()) / 1e4);
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(protocol)
            .with_endpoint(config.endpoint.to_string())
            .with_timeout(timeout)
            .with_http_client(CollectorClient::new(config, timeout))
            .build()?;
        let size = environment::queue_size();
        let queue = Arc::new(SpanQueue::new(size));
        let processor = BatchSpanProcessor::builder(CountingExporter::new(exporter, queue.clone()))
            .with_batch_config(BatchConfigBuilder::default().with_max_queue_size(size).build())
            .build();
        let mut builder = SdkTracerProvider::builder()
            .with_span_processor(QueuedSpans::new(processor, queue))
            .with_resource(service_resource());
        if let Some(sampling) = sampling {
            let root = Sampler::TraceIdRatioBased(sampling);
            builder = builder.with_sampler(Sampler::ParentBased(Box::new(root)));
        }
        Ok(Some(Self {
            provider: builder.build(),
            tls,
        }))
    }

    /// Reloads the TLS files of the connection to the collector when they change, until the runtime ends. Call it after
    /// the log is set up, because it may log warnings.
    pub fn keep_tls_fresh(&self) {
        let tls = self.tls.clone();
        tokio::spawn(async move { tls.keep_fresh().await });
    }

    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("admittance"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(SPANS, tracing::Level::DEBUG))
    }

    /// Ends the export: sends the remaining spans, for a few seconds at most.
    pub async fn shut_down(self) {
        let end = move || self.provider.shutdown_with_timeout(LAST_EXPORT_TIMEOUT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(end).await {
            tracing::warn!("the last spans were not sent: {error}");
        }
    }
}

/// Returns the attributes of this process in the export. Environment variables can replace and add attributes.
fn service_resource() -> Resource {
    let all_attributes = [
        KeyValue::new("service.name", "admittance"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let detected = Resource::builder().build();
    let is_given = |key: &KeyValue| {
        let value = detected.get(&key.key).map(|value| value.to_string());
        value.is_some_and(|value| !value.starts_with("unknown_service"))
    };
    let own_attributes: Vec<_> = all_attributes
        .into_iter()
        .filter(|attribute| !is_given(attribute))
        .collect();
    Resource::builder().with_attributes(own_attributes).build()
}
