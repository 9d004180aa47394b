//! An OTLP receiver: what processes export over HTTP, decoded and kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    metrics::v1::{NumberDataPoint, metric::Data, number_data_point},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle};

/// Attributes as text, in the order of their names.
pub type Attributes = BTreeMap<String, String>;

/// A receiver at work.
pub struct Collector {
    address: String,
    kept: Kept,
    serving: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Exported>>);

#[derive(Default)]
struct Exported {
    /// The last export of each process, by metric: exports are cumulative, so the last one includes all before it.
    points: HashMap<(String, String), Vec<(Attributes, f64)>>,
    spans: Vec<Span>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Exported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector {
    /// Listens on a free port.
    ///
    /// # Errors
    /// There is none.
    pub async fn start() -> Result<Collector> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no free port for the collector")?;
        let address = format!("http://{}", listener.local_addr()?);
        let kept = Kept::default();
        let routes = Router::new()
            .route("/v1/metrics", post(metrics))
            .route("/v1/traces", post(traces))
            .with_state(kept.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, routes).await.expect("the collector serves");
        });
        Ok(Collector { address, kept, serving })
    }

    /// Where exporters send to.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// The sum of a metric over all processes and attributes; of a histogram, how often something was recorded.
    pub fn sum(&self, metric: &str) -> f64 {
        self.sum_of(metric, |_, _| true)
    }

    /// The sum of a metric of the process with this id.
    pub fn sum_in(&self, metric: &str, pid: u32) -> f64 {
        self.sum_of(metric, |instance, _| instance == pid.to_string())
    }

    /// The sum of a metric over all processes, where `fits` says so of the process and the attributes.
    pub fn sum_of(&self, metric: &str, fits: impl Fn(&str, &Attributes) -> bool) -> f64 {
        let exported = self.kept.lock();
        let of_metric = exported.points.iter().filter(|((_, name), _)| name == metric);
        let points = of_metric.flat_map(|((instance, _), points)| points.iter().map(move |point| (instance, point)));
        points
            .filter(|(instance, (attributes, _))| fits(instance, attributes))
            .map(|(_, (_, value))| value)
            .sum()
    }

    /// The names of all metrics that came.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.kept.lock().points.keys().map(|(_, name)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The spans that came.
    pub fn spans(&self) -> Vec<Span> {
        self.kept.lock().spans.clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn metrics(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportMetricsServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut exported = kept.lock();
    for of_process in request.resource_metrics {
        let instance = instance(of_process.resource.as_ref());
        for metric in of_process.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let points = match metric.data {
                Some(Data::Sum(sum)) => sum.data_points.iter().map(number).collect(),
                Some(Data::Gauge(gauge)) => gauge.data_points.iter().map(number).collect(),
                Some(Data::Histogram(of)) => of
                    .data_points
                    .iter()
                    .map(|point| (attributes(&point.attributes), point.count as f64))
                    .collect(),
                _ => continue,
            };
            exported.points.insert((instance.clone(), metric.name), points);
        }
    }
    StatusCode::OK
}

async fn traces(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|of_process| of_process.scope_spans);
    kept.lock().spans.extend(scopes.flat_map(|scope| scope.spans));
    StatusCode::OK
}

fn instance(resource: Option<&Resource>) -> String {
    let of = attributes(resource.map_or(&[], |resource| &resource.attributes[..]));
    of.get("service.instance.id").cloned().unwrap_or_default()
}

fn number(point: &NumberDataPoint) -> (Attributes, f64) {
    let value = match point.value {
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        Some(number_data_point::Value::AsDouble(value)) => value,
        None => 0.0,
    };
    (attributes(&point.attributes), value)
}

/// Attributes as text.
pub fn attributes(of: &[KeyValue]) -> Attributes {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(yes)) => yes.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
}
