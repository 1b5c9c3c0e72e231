//! The lists of metrics, failures and settings of the stock plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use admittance::admission::FailureKind;
use admittance_sdk::testing;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::Value;

use super::page::{Page, codes};

/// Records the descriptions of metrics, but no values.
#[derive(Clone, Default)]
struct Described(Arc<Mutex<BTreeMap<String, &'static str>>>);

impl Described {
    fn note(&self, name: KeyName, kind: &'static str) {
        self.0.lock().unwrap().insert(name.as_str().to_owned(), kind);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "counter");
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "gauge");
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "histogram");
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn metrics_are_listed() {
    let described = Described::default();
    metrics::with_local_recorder(&described, || {
        admittance::describe_metrics();
        admittance_driver::describe_metrics();
        admittance_cluster::describe_metrics();
        admittance_outbound::describe_metrics();
    });
    let mut listed: BTreeMap<String, &str> = BTreeMap::new();
    let pages = ["docs/operators.md", "docs/gateway.md"].map(Page::read);
    for page in &pages {
        for row in page.rows("Metrics") {
            listed.extend(codes(row[0]).first().map(|name| ((*name).to_owned(), row[1])));
        }
    }
    assert_eq!(listed, *described.0.lock().unwrap());
}

#[test]
fn failures_are_listed() {
    let page = Page::read("docs/operators.md");
    assert_eq!(
        page.first_column("Failures"),
        FailureKind::ALL
            .iter()
            .map(|kind| kind.as_str())
            .collect::<Vec<_>>()
    );
}

#[test]
fn settings_of_the_stock_plugins_are_listed() {
    let page = Page::read("docs/operators.md");
    for description in [
        testing::describe::<sidecar_injector::SidecarInjector>(),
        testing::describe::<image_policy::ImagePolicy>(),
        testing::describe::<edge_health::EdgeHealth>(),
    ] {
        let schema: Value = serde_json::from_str(&description.settings_schema.unwrap()).unwrap();
        let settings: BTreeSet<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let listed: BTreeSet<&str> = page.first_column(&description.name).into_iter().collect();
        assert_eq!(listed, settings, "{}", description.name);
    }
}
