//! Checks that the pages list every metric, every failure and all settings of the stock plugins.

use std::collections::BTreeSet;

use admittance::admission::FailureKind;
use admittance_sdk::testing;
use serde_json::Value;

use super::page::{Page, code_spans};

#[test]
fn every_metric_is_documented() {
    let all = admittance::METRICS.iter().chain(admittance_outbound::METRICS);
    let declared: BTreeSet<_> = all
        .chain(admittance_driver::metrics())
        .map(|metric| {
            (
                metric.name,
                format!("{:?}", metric.kind).to_lowercase(),
                metric.labels.to_vec(),
            )
        })
        .collect();
    let pages = ["docs/metrics.md", "docs/gateway.md"].map(Page::read);
    let rows = pages.iter().flat_map(|page| page.rows("Metrics"));
    let documented_metrics = rows.filter_map(|row| {
        // A row has four cells: name, type, labels and meaning. If a metric has no labels, the third cell is empty and
        // is lost when the row is split. Then `row[2]` is the fourth cell, with a `|` at its start.
        let labels = Some(row[2])
            .filter(|cell| !cell.starts_with('|'))
            .map(code_spans)
            .unwrap_or_default();
        Some((*code_spans(row[0]).first()?, row[1].to_owned(), labels))
    });
    assert_eq!(documented_metrics.collect::<BTreeSet<_>>(), declared);
}

#[test]
fn every_kind_of_failure_is_documented() {
    let page = Page::read("docs/health.md");
    assert_eq!(
        page.first_column("Failures"),
        FailureKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>()
    );
}

#[test]
fn settings_of_the_stock_plugins_are_documented() {
    let page = Page::read("docs/stock-plugins.md");
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
        let documented_settings: BTreeSet<&str> = page.first_column(&description.name).into_iter().collect();
        assert_eq!(documented_settings, settings, "{}", description.name);
    }
}
