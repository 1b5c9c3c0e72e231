//! Opens the console in a browser, with real requests.
//!
//! The tests save screenshots of all pages in `target/console`.

mod overview;
mod playground;
mod scale;
mod screenshots;
mod sign_in;
mod steering;

use std::{env, fs};

use admittance_tests::{Serve, repository};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    browser::Browser,
    kubernetes::server::{POD, Server},
    scene::{run_test_cases, source},
};

/// Returns two chains: one changes images, and one in Audit mode refuses images with the tag `latest`.
pub(crate) fn chains() -> String {
    let images = source("image-policy");
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  rules: [{{ operations: [CREATE, UPDATE], apiGroups: [''], resources: [pods] }}]
  stages:
    - name: registry
      plugin:
        source: \"{images}\"
        settings: {{ rewrites: {{ docker.io: mirror.example.com/docker-hub }}, refuseLatest: true }}
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: trial }}
spec:
  phase: Validating
  rules: [{{ operations: [CREATE], apiGroups: [''], resources: [pods] }}]
  stages:
    - name: tags
      mode: Audit
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
"
    )
}

pub(crate) fn pod_review(uid: &str, namespace: &str, name: &str, image: &str) -> Value {
    let mut review = POD.review(uid);
    let request = &mut review["request"];
    request["name"] = json!(name);
    request["namespace"] = json!(namespace);
    request["object"]["metadata"]["name"] = json!(name);
    request["object"]["metadata"]["namespace"] = json!(namespace);
    request["object"]["spec"]["containers"][0]["image"] = json!(image);
    review
}

impl Server {
    pub(crate) async fn send_pod(&self, uid: &str, namespace: &str, name: &str, image: &str) {
        self.review("/admit", &pod_review(uid, namespace, name, image)).await;
    }

    pub(crate) async fn send_three_pods(&self) {
        self.send_pod("changed-1", "shop", "web", "nginx:1.29").await;
        self.send_pod("denied-1", "shop", "cart", "nginx").await;
        self.send_pod("allowed-1", "billing", "api", "mirror.example.com/api:2")
            .await;
    }
}

#[tokio::test]
async fn decisions_are_shown_as_they_are_made() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    server.send_three_pods().await;
    browser.open(&server.program.admin_url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    let rows = browser.texts("table.live tbody tr").await;
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for (row, [verdict, object]) in rows.iter().zip([
        ["allowed", "billing/api"],
        ["denied", "shop/cart"],
        ["changed", "shop/web"],
    ]) {
        assert!(
            row.contains(verdict) && row.contains(object),
            "{verdict} {object}: {row}"
        );
    }
    assert!(rows[1].contains("latest"), "the message of the denial: {}", rows[1]);
    browser.find_with("table.chains tr", "images").await;
    browser.save_pictures("live").await;

    server.send_pod("denied-2", "shop", "late", "nginx").await;
    browser.find_with("table.live tbody tr:first-child", "shop/late").await;

    browser.click("button", "Stop").await;
    browser.find_with(".live-state", "Stopped").await;
    server
        .send_pod("allowed-2", "billing", "meanwhile", "mirror.example.com/api:2")
        .await;
    browser.click("button", "Go").await;
    browser
        .find_with("table.live tbody tr:first-child", "billing/meanwhile")
        .await;
    assert_eq!(browser.find_all("table.live tbody tr").await.len(), 5);

    // The filter's fields are in a closed `details` element, and the WebDriver finds only visible elements.
    let unfold = "document.querySelector('details.filtering').open = true";
    browser.evaluate::<()>(unfold, Vec::new()).await;
    let suggested =
        "return [...document.querySelectorAll('#namespace-suggestions option')].map((option) => option.value)";
    let suggested: Vec<String> = browser.evaluate(suggested, Vec::new()).await;
    assert_eq!(suggested, ["billing", "shop"]);
    browser.click("input[value=denied]", "").await;
    browser.write("input[name=namespace]", "shop").await;
    browser.click("button", "Filter").await;
    browser.find_with(".live-state", "Live").await;
    let filtered = server.program.admin_url("/live?namespace=shop&verdict=denied");
    browser.open(&filtered).await;
    browser.find_with(".live-state", "Live").await;
    server
        .send_pod("allowed-3", "shop", "skipped", "mirror.example.com/api:2")
        .await;
    server.send_pod("denied-3", "shop", "shown", "nginx").await;
    browser.find_with("table.live tbody tr:first-child", "shop/shown").await;
    let objects = browser.texts("table.live td[data-label=Object]").await;
    assert_eq!(objects, ["shop/shown", "shop/late", "shop/cart"]);
    browser.save_pictures("live-filtered").await;

    // The server applies a text filter in the URL, so that it works without JavaScript.
    browser.open(&server.program.admin_url("/live?text=meanwhile")).await;
    assert_eq!(
        browser.texts("table.live td[data-label=Object]").await,
        ["billing/meanwhile"]
    );
    browser.end(&origin).await;
}

#[tokio::test]
async fn users_who_prefer_less_motion_see_no_animation() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    server.send_three_pods().await;
    browser.find("table.live tr.new").await;
    for (preference, animation) in [("no-preference", "arrived"), ("reduce", "none")] {
        browser.set_preference("prefers-reduced-motion", preference).await;
        let script = "return getComputedStyle(document.querySelector('table.live tr.new')).animationName";
        let animation_name: String = browser.evaluate(script, Vec::new()).await;
        assert_eq!(animation_name, animation, "{preference}");
    }
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_page_of_a_decision_shows_all_its_details() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    server.send_three_pods().await;
    browser.open(&server.program.admin_url("/live")).await;
    browser.click("table.live tbody tr:last-child a", "").await;
    browser.find_with("h1", "Decision changed-1").await;
    let stages = browser.texts("table.timeline tbody tr").await;
    assert_eq!(stages.len(), 2, "{stages:#?}");
    assert!(
        stages[0].contains("images/registry") && stages[0].contains("patch"),
        "{stages:#?}"
    );
    assert!(
        stages[1].contains("trial/tags") && stages[1].contains("Audit"),
        "{stages:#?}"
    );
    assert_eq!(browser.find_all("table.timeline svg.bar rect").await.len(), 2);
    let (before, after) = (
        browser.texts("table.diff td.removed").await,
        browser.texts("table.diff td.added").await,
    );
    assert!(
        before.iter().any(|line| line.contains("image: \"nginx:1.29\"")),
        "{before:?}"
    );
    assert!(
        after
            .iter()
            .any(|line| line.contains("mirror.example.com/docker-hub/library/nginx:1.29")),
        "{after:?}"
    );
    browser.save_pictures("decision").await;

    let [curl, again, case] = &browser.texts("details pre").await[..] else {
        panic!("{}", browser.page_text().await);
    };
    let decisions: Value = serde_json::from_str(&run_in_shell(curl).await).unwrap();
    assert_eq!(decisions["decisions"][0]["uid"], "changed-1", "{decisions}");
    let answer: Value = serde_json::from_str(&run_in_shell(again).await).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    let cases = server.directory.path().join("cases.yaml");
    fs::write(&cases, case).unwrap();
    let chains = server.directory.path().join("chains.yaml");
    let tested = run_test_cases(&chains, &cases).await;
    assert_eq!(tested.code, Some(0), "{case}\n{}{}", tested.stdout, tested.stderr);

    browser.click("summary", "curl").await;
    browser.click("copy-text button", "Copy").await;
    browser.find_with("copy-text button", "Cop").await;

    browser.click("button", "Replay against what is live").await;
    browser.find_with("h1", "Replay of changed-1").await;
    browser.find_with("main", "the answer is the same").await;
    browser.open(&server.program.admin_url("/decisions/changed-1")).await;
    browser
        .click("a.button", "Open in the playground with Mutating:images")
        .await;
    assert!(browser.editor_text("definitions").await.contains("name: images"));
    let review = browser.editor_text("object").await;
    assert!(review.contains("uid: changed-1"), "{review}");
    browser.click("button", "Evaluate").await;
    browser.find_with("#outcome h2", "changed").await;

    browser.open(&server.program.admin_url("/decisions/denied-1")).await;
    browser.find_with(".notice.bad", "latest").await;
    browser.save_pictures("decision-denied").await;
    browser.open(&server.program.admin_url("/decisions/of%20nobody")).await;
    browser
        .find_with(".notice", "there is no decision with the uid \"of nobody\"")
        .await;
    browser.assert_only_failed_with("404").await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_page_of_a_refused_request_names_the_discarded_patches() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    // The first chain rewrites the image to this registry, and the second chain refuses this registry.
    let refused = "settings: { refusedRegistries: [mirror.example.com/docker-hub] }";
    let chains = chains()
        .replace("      mode: Audit\n", "")
        .replace("settings: { refuseLatest: true }", refused);
    let server = Server::start("", &chains).await;
    let origin = server.program.admin_url("");
    server.send_pod("refused-1", "shop", "web", "nginx:1.29").await;
    browser.open(&server.program.admin_url("/decisions/refused-1")).await;
    browser
        .find_with("main", "the patches of images/registry were discarded")
        .await;
    let stages = browser.texts("table.timeline tbody tr").await;
    assert!(
        stages[0].contains("discarded") && !stages[1].contains("discarded"),
        "{stages:?}"
    );
    browser.save_pictures("decision-refused").await;
    browser.end(&origin).await;
}

/// Clients choose names and images, and plugin authors choose messages, so all of these may contain markup.
#[tokio::test]
async fn text_from_requests_is_never_interpreted_as_markup() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    let attack = "<img src=x onerror=\"document.title='attacked'\">'";
    browser.open(&server.program.admin_url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    // The page is open when the program gets this request, so a script adds a row for the decision to the page. Then
    // the page is loaded again, and the row comes from the server instead of the script. Neither of them may run the
    // markup in the row.
    for uid in ["u1", "u2"] {
        let mut review = pod_review(uid, attack, attack, attack);
        review["request"]["userInfo"]["username"] = json!(attack);
        review["request"]["object"]["metadata"]["labels"] = json!({attack: attack});
        server.post("/admit", &review).await;
        browser.find_with("table.live tbody tr", attack).await;
        browser.open(&server.program.admin_url("/live")).await;
    }
    for path in [
        "/live".to_owned(),
        "/decisions/u1".to_owned(),
        format!("/live?text={}", attack.replace(' ', "+")),
    ] {
        browser.open(&server.program.admin_url(&path)).await;
        browser.find_with("main", attack).await;
        assert!(browser.find_all("main img").await.is_empty(), "{path}");
    }
    browser.end(&origin).await;
}

async fn run_in_shell(command: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(command).output().await.unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_health_page_shows_what_the_driver_depends_on() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/health")).await;
    let listen = server.program.url("").replace("http://", "");
    for (heading, row) in [
        ("Listeners", [listen.as_str(), "TLS"]),
        ("Certificates", ["listen", "valid until"]),
        ("Definitions", ["chains.yaml", "1 file"]),
        ("On disk", ["history", "KiB"]),
    ] {
        let section = browser.find_with("section", heading).await.text().await.unwrap();
        assert!(row.iter().all(|part| section.contains(part)), "{heading}: {section}");
    }
    browser.save_pictures("health").await;
    fs::write(
        server.directory.path().join("chains.yaml"),
        chains().replace("registry", "Not A Name"),
    )
    .unwrap();
    server
        .program
        .wait_for_status("a problem", |status| status["problem"].is_object())
        .await
        .unwrap();
    browser.open(&server.program.admin_url("/health")).await;
    browser.find_with(".alert.bad", "spec.stages[0].name").await;
    browser.save_pictures("health-problem").await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_health_page_says_why_and_since_when_a_server_is_down() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    // The listener is dropped at once, so that no server listens on the port to which requests are forwarded.
    let closed_address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("admittance.yaml");
    let text = format!(
        "dialect:
  rest:
    routes: [{{ method: [PUT], path: /v1/jobs, operation: UPDATE, resource: jobs, kind: Job }}]
upstream: {{ servers: [\"http://{closed_address}\"], health: {{ path: /healthz, interval: 1s }} }}
"
    );
    fs::write(&config, text).unwrap();
    let mut program = Serve::new(&config).unwrap().start().await.unwrap();
    let origin = program.admin_url("");
    program
        .wait_for_status("the check", |status| status["upstream"][0]["up"] == false)
        .await
        .unwrap();
    browser.open(&program.admin_url("/health")).await;
    let element = browser
        .find_with("tr", &format!("upstream http://{closed_address}"))
        .await;
    let row = element.text().await.unwrap();
    for part in ["down", "for ", "refused", "Start it"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    browser.find_with(".alert.bad", "refused").await;
    browser.save_pictures("health-down").await;
    browser.end(&origin).await;
    program.terminate().unwrap();
    program.wait_for_end().await.unwrap();
}

#[tokio::test]
async fn console_scripts_pass_the_type_checker() {
    let Some(directory) = env::var_os("ADMITTANCE_TEST_TYPESCRIPT") else {
        eprintln!(
            "skipped: ADMITTANCE_TEST_TYPESCRIPT is not set, since `cargo task test` could not fetch TypeScript; it \
             says why"
        );
        return;
    };
    let tsc = std::path::Path::new(&directory).join("node_modules/.bin/tsc");
    let project = repository().join("host/admin/src/console/tsconfig.json");
    let output = Command::new(tsc).arg("--project").arg(project).output().await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
}
