//! A page that Prometheus reads, for worker processes that ask for one (feature `prometheus`).

use std::net::SocketAddr;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};
use rowlock::{Error, Result};

use crate::Telemetry;

/// Metrics that are read instead of exported. In names, dots become underscores, and counters end in `_total`.
#[derive(Clone)]
pub struct Prometheus {
    provider: SdkMeterProvider,
    registry: Registry,
}

impl Prometheus {
    /// An empty page.
    ///
    /// # Errors
    /// [`Error::Config`] when the exporter refuses; a fresh registry gives it no reason to.
    pub fn new() -> Result<Prometheus> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            // The names of the metrics have their unit already.
            .without_units()
            .build()
            .map_err(|e| Error::Config(format!("could not write metrics for Prometheus: {e}")))?;
        Ok(Prometheus {
            provider: SdkMeterProvider::builder().with_reader(exporter).build(),
            registry,
        })
    }

    /// What a worker measures on this page, for [`Measure::telemetry`](crate::Measure::telemetry).
    pub fn telemetry(&self) -> Telemetry {
        Telemetry::on(self.provider.meter("rowlock"))
    }

    /// The page's text as of now.
    ///
    /// # Errors
    /// [`Error::Config`] when a metric cannot be written as text.
    pub fn text(&self) -> Result<String> {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(|e| Error::Config(format!("could not write metrics for Prometheus: {e}")))
    }

    /// `GET /metrics`, to be merged into a server that the program has.
    pub fn router(&self) -> Router {
        Router::new().route("/metrics", get(page)).with_state(self.clone())
    }

    /// Serves that page alone, until dropped.
    ///
    /// # Errors
    /// [`Error::Config`] when the address cannot be listened on.
    pub async fn serve(self, address: SocketAddr) -> Result<()> {
        let refused = |e: std::io::Error| Error::Config(format!("could not serve metrics at {address}: {e}"));
        let listener = tokio::net::TcpListener::bind(address).await.map_err(refused)?;
        axum::serve(listener, self.router()).await.map_err(refused)
    }
}

async fn page(State(prometheus): State<Prometheus>) -> Response {
    match prometheus.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
