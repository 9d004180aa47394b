//! What a victim lets out: its log, and where it is told to, its metrics and spans by OTLP, as a user's program does.

use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry::{KeyValue, global, trace::TracerProvider};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::SdkTracerProvider,
};
use proof::victim::Orders;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// How often metrics are exported.
const EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Exports(Option<(SdkMeterProvider, SdkTracerProvider)>);

/// Before anything is measured.
pub(crate) fn start(orders: &Orders) -> Result<Exports> {
    let level = if orders.quiet { "rowlock=info" } else { "rowlock=debug" };
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_filter(EnvFilter::new(level));
    let Some(endpoint) = &orders.otlp else {
        tracing_subscriber::registry().with(log).init();
        return Ok(Exports(None));
    };
    let resource = Resource::builder()
        .with_service_name("victim")
        .with_attribute(KeyValue::new("service.instance.id", std::process::id().to_string()))
        .build();
    let metrics = MetricExporter::builder()
        .with_http()
        .with_endpoint(format!("{endpoint}/v1/metrics"))
        .build()?;
    let meters = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(metrics).with_interval(EVERY).build())
        .with_resource(resource.clone())
        .build();
    global::set_meter_provider(meters.clone());
    let spans = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .build()?;
    let tracers = SdkTracerProvider::builder()
        .with_batch_exporter(spans)
        .with_resource(resource)
        .build();
    let traces = tracing_opentelemetry::layer()
        .with_tracer(tracers.tracer("rowlock"))
        .with_filter(EnvFilter::new("rowlock=info"));
    tracing_subscriber::registry().with(log).with(traces).init();
    Ok(Exports(Some((meters, tracers))))
}

impl Exports {
    /// Sends what is left. It blocks, so not on a thread that others wait for.
    pub(crate) async fn end(self) -> Result<()> {
        let Some((meters, tracers)) = self.0 else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || {
            meters.shutdown().context("the last metrics")?;
            tracers.shutdown().context("the last spans")
        })
        .await?
    }
}
