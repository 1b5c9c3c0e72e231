//! The cost of recording decisions: the time of a request, the memory after a million decisions, and searches.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use admittance::{DecisionFilter, DecisionVerdict, DecisionsConfig, Host, Traffic};
use admittance_tests::{Client, Serve, resident_memory};

use crate::{
    SETTINGS, assert_changed, chain_file,
    measure::{MeasuredTable, Times},
    native, objects, request,
    reviews::review,
};

/// Measures three costs of recorded decisions: the time of
/// `requests` requests, the program's memory after `decision_count` decisions, and searches in a log of `rows`
/// decisions.
pub(crate) async fn measure(directory: &Path, requests: usize, decision_count: usize, rows: usize) {
    let text = objects::pod(2);
    let mut table = MeasuredTable::new(&format!(
        "decisions: a {} byte Pod, {requests} requests each, one after another",
        text.len()
    ));
    let build = async |decisions: Option<DecisionsConfig>| {
        let builder = Host::builder().chain(native::chain(SETTINGS));
        let builder = match decisions {
            Some(config) => builder.decisions(config),
            None => builder,
        };
        builder.build().await.unwrap()
    };
    let (without_log, with_log) = (build(None).await, build(Some(DecisionsConfig::default())).await);
    let base = table
        .measure(
            "native code as a stage, without decisions",
            None,
            requests,
            async || assert_changed(without_log.admit(request(&text)).await),
        )
        .await;
    table
        .measure(
            "native code as a stage, with decisions",
            Some(base),
            requests,
            async || assert_changed(with_log.admit(request(&text)).await),
        )
        .await;

    table.note(measure_trends(base));

    let megabytes = || resident_memory(std::process::id()).unwrap() / 1_000_000;
    let before = megabytes();
    // Fill the log of decisions first, because a full log drops the oldest decision for each new one.
    for _ in 0..DecisionsConfig::default().count.min(decision_count) {
        with_log.admit(request(&text)).await;
    }
    let full = megabytes();
    for _ in 0..decision_count {
        with_log.admit(request(&text)).await;
    }
    table.note(format!(
        "resident memory: {before} MB before, {full} MB with a full log, {} MB after {decision_count} more decisions",
        megabytes()
    ));
    let nobody = DecisionFilter::default().user("nobody");
    table
        .measure(
            "a filter that matches none of 10,000 in memory",
            None,
            100,
            async || with_log.decisions().list(&nobody, None, 100),
        )
        .await;
    measure_searches(&mut table, directory, rows).await;
    table.print();
}

/// Measures what counting a request for the console's trends costs. It must be below 1 % of the request's time.
fn measure_trends(request: Times) -> String {
    const REQUESTS: u32 = 1_000_000;
    let start = Instant::now();
    let traffic = Traffic::new(start);
    for number in 0..REQUESTS {
        let duration = Duration::from_micros(u64::from(number % 997));
        traffic.record(
            DecisionVerdict::Allowed,
            duration,
            start + Duration::from_millis(number.into()),
        );
    }
    let mean_duration = start.elapsed() / REQUESTS;
    let share = 100.0 * mean_duration.as_secs_f64() / request.median().as_secs_f64();
    format!(
        "counting a request for the trends of the console: {mean_duration:?}, {share:.2} % of the request without decisions"
    )
}

async fn measure_searches(table: &mut MeasuredTable, directory: &Path, rows: usize) {
    let database = directory.join("decisions.db");
    let chains = chain_file(directory, 1);
    let config = format!(
        "{{dialect: {{kubernetes: {{}}}}, definitions: [{chains:?}], decisions: {{memory: {{count: 100}}, sqlite: {{file: {database:?}}}}}}}"
    );
    let path = directory.join("decisions.yaml");
    std::fs::write(&path, config).unwrap();
    let program = Serve::new(&path).unwrap().start().await.unwrap();
    let client = Client::new().unwrap();
    let (url, review) = (program.url("/admit"), review(&objects::pod(2)));
    for _ in 0..rows {
        let request = http::Request::post(&url)
            .header("content-type", "application/json")
            .body(review.clone())
            .unwrap();
        assert_eq!(client.send(request).await.unwrap().status, 200);
    }
    let count_recorded = || async {
        let metrics = program.metrics().await.unwrap();
        let sink = [("sink", "sqlite")];
        let sum = |name| metrics.sum(name, &sink).unwrap_or_default();
        sum("admittance_decisions_written_total") + sum("admittance_decisions_dropped_total")
    };
    #[expect(clippy::cast_precision_loss, reason = "it is small")]
    while count_recorded().await < rows as f64 {
        tokio::time::sleep(admittance_tests::POLL_INTERVAL).await;
    }
    for (name, query) in [
        ("100 of a chain", "chain=plugins-1"),
        ("100 of a namespace and a stage", "namespace=shop&stage=sidecar-0"),
        ("a filter that matches none", "user=nobody&stage=sidecar-0"),
    ] {
        let url = program.admin_url(&format!("/v1/decisions?{query}"));
        table
            .measure(&format!("of {rows} in SQLite: {name}"), None, 100, async || {
                assert_eq!(client.get(&url).await.unwrap().status, 200);
            })
            .await;
    }
}
