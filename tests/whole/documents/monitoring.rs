//! Checks the dashboard and the alert rules in `docs/examples/monitoring`, and the labels of metrics.

mod promql;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
};

use admittance_definitions::{Mistakes, document};
use admittance_tests::repository;
use serde_json::{Value, json};
use tokio::process::Command;

use self::promql::{PromqlExpression, Selector};
use super::page::{Page, code_spans};
use crate::scene::{ProgramScene, application};

const FOLDER: &str = "docs/examples/monitoring";

/// The labels that Prometheus itself adds to every series.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];

struct ListedMetric {
    is_histogram: bool,
    labels: BTreeSet<String>,
    /// All code spans in the description of the metric. Some of them are the values that the metric's labels can have.
    values: BTreeSet<String>,
}

fn read_documented_metrics() -> BTreeMap<String, ListedMetric> {
    let owned = |codes: Vec<&str>| codes.into_iter().map(str::to_owned).collect();
    let pages = ["docs/metrics.md", "docs/gateway.md"].map(Page::read);
    let rows = pages.iter().flat_map(|page| page.rows("Metrics"));
    let metrics = rows.filter_map(|row| {
        let name = code_spans(row[0]).first().map(|name| (*name).to_owned())?;
        // A row has four cells: name, type, labels and meaning. If a metric has no labels, the third cell is empty and
        // is lost when the row is split. Then the row has only three cells.
        let (labels, meaning) = match row.as_slice() {
            [_, _, labels, meaning] => (*labels, *meaning),
            _ => ("", row[2]),
        };
        let metric = ListedMetric {
            is_histogram: row[1] == "histogram",
            labels: owned(code_spans(labels)),
            values: owned(code_spans(meaning)),
        };
        Some((name, metric))
    });
    metrics.collect()
}

/// A PromQL expression of the dashboard or of an alert rule. `labels` are the labels of its result that users see: in
/// the dashboard's legend, or in the message of the alert.
struct ShownExpression {
    location: String,
    expression: String,
    labels: Vec<String>,
}

fn names_after(text: &str, prefix: &str) -> Vec<String> {
    let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let parts = text.split(prefix).skip(1);
    parts
        .map(|part| part.trim_start().chars().take_while(is_part).collect())
        .collect()
}

fn read_document(name: &str) -> Value {
    let path = format!("{FOLDER}/{name}");
    let text = std::fs::read_to_string(repository().join(&path)).unwrap();
    let mut mistakes = Mistakes::new();
    let documents = document::read_text(&path, &text, &mut mistakes);
    mistakes.into_result(()).unwrap();
    documents.first().unwrap().root_ignoring_mistakes().json()
}

fn rule_expressions() -> Vec<ShownExpression> {
    let rules = read_document("alerts.yaml");
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let expressions = rules.map(|rule| {
        let texts = rule["annotations"].to_string();
        ShownExpression {
            location: rule["alert"].as_str().unwrap().to_owned(),
            expression: rule["expr"].as_str().unwrap().to_owned(),
            labels: names_after(&texts, "$labels."),
        }
    });
    expressions.collect()
}

fn dashboard_expressions() -> Vec<ShownExpression> {
    let dashboard = read_document("dashboard.json");
    let annotations = dashboard["annotations"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|annotation| (&annotation["name"], &annotation["target"]));
    let panels = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (&panel["title"], target))
    });
    let mut expressions: Vec<_> = annotations
        .chain(panels)
        .map(|(title, target)| ShownExpression {
            location: format!("{} of the dashboard", title.as_str().unwrap()),
            expression: target["expr"].as_str().unwrap().replace("$__rate_interval", "5m"),
            labels: names_after(target["legendFormat"].as_str().unwrap(), "{{"),
        })
        .collect();
    // The query of a dashboard variable is `label_values(series, label)`.
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["definition"].as_str() else {
            continue;
        };
        let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (series, label) = inner.rsplit_once(", ").unwrap();
        expressions.push(ShownExpression {
            location: format!("the variable {}", variable["name"].as_str().unwrap()),
            expression: series.to_owned(),
            labels: vec![label.to_owned()],
        });
    }
    expressions
}

#[test]
fn dashboards_and_alerts_use_metrics_and_labels_that_exist() {
    let documented_metrics = read_documented_metrics();
    let metrics = Page::read("docs/metrics.md").text;
    let mut problems = Vec::new();
    for shown_expression in rule_expressions().into_iter().chain(dashboard_expressions()) {
        let expression = PromqlExpression::parse(&shown_expression.expression);
        assert!(!expression.selectors.is_empty(), "{}", shown_expression.location);
        let mut available_labels: BTreeSet<String> = TARGET_LABELS.map(str::to_owned).into();
        for Selector { name, matchers } in &expression.selectors {
            if name.starts_with("process_") && metrics.contains(&format!("`{name}`")) {
                continue;
            }
            let base = ["_bucket", "_count", "_sum"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .find(|base| documented_metrics.get(*base).is_some_and(|metric| metric.is_histogram));
            let documented_metric = documented_metrics
                .get(base.unwrap_or(name))
                .filter(|metric| metric.is_histogram == base.is_some());
            let Some(metric) = documented_metric else {
                problems.push(format!("{}: there is no metric {name}", shown_expression.location));
                continue;
            };
            available_labels.extend(metric.labels.iter().cloned());
            available_labels.extend(name.ends_with("_bucket").then(|| "le".to_owned()));
            for (label, value) in matchers {
                let is_of_target = TARGET_LABELS.contains(&label.as_str());
                if !is_of_target && !metric.labels.contains(label) {
                    problems.push(format!("{}: {name} has no label {label}", shown_expression.location));
                }
                let unknown = value
                    .split('|')
                    .find(|value| !value.starts_with('$') && !metric.values.contains(*value));
                if let Some(value) = unknown {
                    problems.push(format!(
                        "{}: {label} of {name} is never {value}",
                        shown_expression.location
                    ));
                }
            }
        }
        let unknown = expression
            .groupings
            .iter()
            .filter(|label| !available_labels.contains(*label));
        problems.extend(unknown.map(|label| format!("{}: no metric has the label {label}", shown_expression.location)));
        let series_labels = if expression.groupings.is_empty() {
            &available_labels
        } else {
            &expression.groupings
        };
        let unknown = shown_expression
            .labels
            .iter()
            .filter(|label| !series_labels.contains(*label));
        problems
            .extend(unknown.map(|label| format!("{}: its series have no label {label}", shown_expression.location)));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[tokio::test]
async fn metrics_have_the_documented_labels() {
    let chains = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: names }
spec:
  rules: [{ operations: [CREATE], kinds: [application] }]
  stages:
    - name: good
      cel: { validations: [ { expression: \"object.metadata.name != 'bad'\" } ] }
    - name: nobody
      webhook: { url: \"http://127.0.0.1:1/\", protocol: BcsResource }
      failurePolicy: Ignore
";
    let scene = ProgramScene::start_bcs(chains).await;
    for (name, status) in [("good", 200), ("bad", 400)] {
        let reply = scene.create(&application("shop", name, "nginx:1.29")).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    let metrics = scene.program.metrics().await.unwrap();
    let documented_metrics = read_documented_metrics();
    let mut metric_names = BTreeSet::new();
    let series = metrics.text().lines().filter(|line| line.starts_with("admittance_"));
    for line in series {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .filter(|base| documented_metrics.contains_key(*base))
            .unwrap_or(name);
        let metric = documented_metrics
            .get(base)
            .unwrap_or_else(|| panic!("{name} is listed"));
        let labels: BTreeSet<String> = labels
            .split("\",")
            .filter_map(|label| Some(label.split_once('=')?.0))
            .filter(|label| *label != "le")
            .map(str::to_owned)
            .collect();
        assert_eq!(labels, metric.labels, "{line}");
        metric_names.insert(base.to_owned());
    }
    assert!(
        metric_names.contains("admittance_stage_failures_total"),
        "{metric_names:?}"
    );
    assert!(
        metric_names.contains("admittance_http_upstream_duration_seconds"),
        "{metric_names:?}"
    );
}

/// Prometheus accepts the alert rules and the dashboard's expressions, and its test tool confirms when alerts fire.
#[tokio::test]
async fn prometheus_accepts_every_expression() {
    const VARIABLE: &str = "ADMITTANCE_TEST_PROMTOOL";
    let Some(promtool) = env::var_os(VARIABLE) else {
        eprintln!("skipped: {VARIABLE} is not set, since `cargo task test` could not unpack promtool; it says why");
        return;
    };
    let run = async |arguments: [&str; 2], file: &Path| {
        let output = Command::new(&promtool)
            .args(arguments)
            .arg(file)
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let text = format!("{}{errors}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{text}");
        text
    };
    let folder = tempfile::tempdir().unwrap();
    let expressions = dashboard_expressions();
    let recorded = expressions.iter().enumerate();
    let rules: Vec<_> = recorded
        .map(|(number, expression)| json!({"record": format!("dashboard_{number}"), "expr": expression.expression}))
        .collect();
    let count = rules.len();
    let dashboard = folder.path().join("dashboard.yaml");
    // The rules are written as JSON, because every JSON text is also YAML.
    let text = json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    std::fs::write(&dashboard, text).unwrap();
    let alerts = folder.path().join("alerts.yaml");
    std::fs::copy(repository().join(FOLDER).join("alerts.yaml"), &alerts).unwrap();
    for (file, count) in [(dashboard, count), (alerts, rule_expressions().len())] {
        let text = run(["check", "rules"], &file).await;
        assert!(text.contains(&format!("{count} rules found")), "{text}");
    }
    let firing = folder.path().join("firing.yaml");
    std::fs::write(&firing, include_str!("monitoring/firing.yaml")).unwrap();
    run(["test", "rules"], &firing).await;
}
