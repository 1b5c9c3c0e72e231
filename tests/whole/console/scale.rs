//! The console with as many decisions as the log can hold.

use std::{collections::BTreeSet, fs};

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{chains, pod_review};
use crate::{
    browser::{Browser, artefact_directory},
    kubernetes::server::{Server, review_request},
};

const DECISION_COUNT: usize = 10_000;

/// The maximum size in bytes of a page with a list.
const MAX_PAGE_SIZE: u64 = 200_000;

/// Fills the log with decisions, of which a tenth are denials.
async fn fill_decision_log(server: &Server) {
    let url = server.program.tls_url("/admit");
    let requests = stream::iter(0..DECISION_COUNT).map(|number| {
        let image = if number % 10 == 0 { "nginx" } else { "nginx:1.29" };
        let review = pod_review(
            &format!("u-{number}"),
            &format!("team-{}", number % 7),
            &format!("web-{number}"),
            image,
        );
        server.client.send(review_request(&url, &review))
    });
    let replies: Vec<_> = requests.buffer_unordered(32).collect().await;
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap().status == 200));
}

/// Returns the times that the browser measured for a page, in milliseconds, and the size of the page. The times are
/// saved, but no test fails because of them.
async fn measure_times(browser: &Browser, url: &str) -> Value {
    browser.open(url).await;
    browser.find("table.live tbody tr").await;
    let script = "
        const [page] = performance.getEntriesByType('navigation');
        const [paint] = performance.getEntriesByName('first-contentful-paint');
        return { url: location.pathname + location.search, reply: page.responseEnd, content: paint?.startTime, bytes: page.encodedBodySize };";
    browser.evaluate(script, Vec::new()).await
}

#[tokio::test]
async fn console_pages_stay_small_with_a_full_decision_log() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    fill_decision_log(&server).await;

    let mut figures = Vec::new();
    for path in ["/live", "/", "/live", "/live?verdict=denied", "/live?text=web-4999"] {
        figures.push(measure_times(&browser, &url(path)).await);
    }
    // Every page stays below the size limit, although the log is full.
    let largest = figures.iter().map(|page| page["bytes"].as_u64().unwrap()).max();
    assert!(largest < Some(MAX_PAGE_SIZE), "{figures:#?}");
    let figures = serde_json::to_string_pretty(&json!(figures)).unwrap();
    fs::create_dir_all(artefact_directory()).unwrap();
    fs::write(artefact_directory().join("times.json"), figures).unwrap();
    assert_eq!(
        browser.texts("table.live td[data-label=Object]").await,
        ["team-1/web-4999"]
    );

    browser.open(&url("/live?verdict=denied")).await;
    let mut page_count = 0;
    let mut objects = BTreeSet::new();
    loop {
        let rows = browser.texts("table.live td[data-label=Object]").await;
        assert_eq!(rows.len(), 100);
        objects.extend(rows);
        page_count += 1;
        let script = "return [...document.links].find((link) => link.textContent === 'Older')?.href ?? null";
        let Some(older) = browser.evaluate::<Option<String>>(script, Vec::new()).await else {
            break;
        };
        browser.open(&older).await;
    }
    assert_eq!(
        (page_count, objects.len()),
        (DECISION_COUNT / 1000, DECISION_COUNT / 10)
    );

    // While new decisions arrive, the open page removes old rows, so that it does not grow.
    browser.open(&url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    fill_decision_log(&server).await;
    server.send_pod("last", "shop", "last", "nginx").await;
    browser.find_with("table.live tbody tr:first-child", "shop/last").await;
    let rows = browser.find_all("table.live tbody tr").await.len();
    assert!((101..=300).contains(&rows), "{rows}");
    browser.end(&origin).await;
}
