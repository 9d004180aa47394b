//! A victim that exports its metrics and spans by OTLP, as a user's program does.

use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry::{KeyValue, global, trace::TracerProvider};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::SdkTracerProvider,
};
use proof::victim::{
    Orders,
    process::{self, Dress},
};
use rowlock_otel::{Measure, Telemetry};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// How often metrics are exported, and the database is looked at for them.
const EVERY: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> Result<()> {
    let orders = process::orders()?;
    let exports = Exports::start(&orders)?;
    let ran = process::run(&orders, DRESS).await;
    exports.end().await?;
    ran
}

const DRESS: Dress = Dress {
    on_postgres: |worker| worker.telemetry(telemetry()),
    on_sqlite: |worker| worker.telemetry(telemetry()),
};

fn telemetry() -> Telemetry {
    Telemetry::new().sample_every(EVERY)
}

struct Exports(SdkMeterProvider, SdkTracerProvider);

impl Exports {
    /// Before anything is measured.
    fn start(orders: &Orders) -> Result<Exports> {
        let endpoint = orders.otlp.as_ref().context("an exporter's orders say where to")?;
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
        rowlock_otel::install();
        let traces = tracing_opentelemetry::layer().with_tracer(tracers.tracer("rowlock"));
        let traces = traces.with_filter(Targets::new().with_target("rowlock", LevelFilter::INFO));
        let log = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(std::io::stderr);
        let log = log.with_filter(process::log_level(orders));
        tracing_subscriber::registry().with(log).with(traces).init();
        Ok(Exports(meters, tracers))
    }

    /// Sends what is left. It blocks, so not on a thread that others wait for.
    async fn end(self) -> Result<()> {
        tokio::task::spawn_blocking(move || {
            self.0.shutdown().context("the last metrics")?;
            self.1.shutdown().context("the last spans")
        })
        .await?
    }
}
