//! Tests the console's pages about chains, candidates, the history with rollbacks, and the chains for a request.

use std::fs;

use super::{
    pod_review,
    sign_in::{self, ADMIN_TOKEN, READER_TOKEN},
};
use crate::{
    browser::Browser,
    kubernetes::server::{Server, certificates},
    scene::source,
    setting::wait_until,
};

const CONFIG: &str = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
definitions: [chains/]
";

/// Returns a chain of one plugin with a candidate. The plugin and the candidate rewrite images to different registries.
fn images_chain() -> String {
    let images = source("image-policy");
    format!(
        "# Where images come from.
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  rules: [{{ operations: [CREATE, UPDATE], apiGroups: [''], resources: [pods] }}]
  stages:
    - name: registry
      namespaceSelector: {{ operator: NotIn, values: [kube-system] }}
      plugin:
        source: \"{images}\"
        settings: {{ rewrites: {{ docker.io: mirror.example.com/docker-hub }}, refuseLatest: true }}
      candidate:
        source: \"{images}\"
        settings: {{ rewrites: {{ docker.io: other.example.com/hub }}, refuseLatest: true }}
"
    )
}

const OWNERS: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: owners }
spec:
  phase: Validating
  rules: [{ operations: [CREATE], apiGroups: [''], resources: [configmaps] }]
  stages:
    - name: owner
      objectSelector: { matchLabels: { checked: \"yes\" } }
      cel:
        validations: [{ expression: \"'owner' in object.metadata.labels\", message: who owns it }]
";

async fn start_server(config: &str) -> Server {
    let directory = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    fs::create_dir(directory.path().join("chains")).unwrap();
    fs::write(directory.path().join("chains/images.yaml"), images_chain()).unwrap();
    fs::write(directory.path().join("chains/owners.yaml"), OWNERS).unwrap();
    Server::start_in(directory, config, "").await
}

pub(super) async fn server_with_rollout() -> Server {
    let server = start_server(CONFIG).await;
    let rollout = "        rollout: { steps: [5, 25, 50, 100], by: uid, pause: 1h }\n";
    let file = server.directory.path().join("chains/images.yaml");
    fs::write(file, images_chain() + rollout).unwrap();
    server
        .program
        .wait_for_status("the rollout", |status| status["revision"] == 2)
        .await
        .unwrap();
    server
}

#[tokio::test]
async fn a_candidate_can_be_viewed_and_promoted_in_the_console() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server(CONFIG).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    server.send_three_pods().await;
    let compared = |status: &serde_json::Value| {
        let candidate = &status["chains"][0]["stages"][0]["candidate"];
        // For two of the three Pods, the result of the candidate differs from the result of the plugin. One Pod gets a
        // different image. The other Pod is denied by both, but the candidate's message names a different image.
        candidate["different"] == 2 && candidate["same"] == 1
    };
    server
        .program
        .wait_for_status("the comparisons", compared)
        .await
        .unwrap();

    browser.open(&url("/chains")).await;
    let row = browser
        .find_with("table tbody tr", "images")
        .await
        .text()
        .await
        .unwrap();
    assert!(row.contains("registry") && row.contains("candidate"), "{row}");
    browser.save_pictures("chains").await;
    browser.click("a", "images").await;
    browser.find_with("h1", "Chain images").await;
    let stage = browser.find("section.stage").await.text().await.unwrap();
    for expected in ["healthy", "sha256:", "image_policy.wasm", "not required"] {
        assert!(stage.contains(expected), "{expected}: {stage}");
    }
    let numbers = browser.texts("section.stage tbody tr:first-child td.number").await;
    // In the stage's table, the first four numbers count allowed, changed, denied and failed requests.
    assert_eq!(numbers[..4], ["1", "1", "1", "0"], "{numbers:?}");
    let text = browser.find("pre.numbered").await.text().await.unwrap();
    assert!(text.contains("# Where images come from."), "{text}");
    browser.find_with("code", "chains/images.yaml:").await;
    browser.click("section.stage a", "chains/images.yaml:8").await;
    let target = "return document.querySelector('.line:target').textContent";
    let target: String = browser.evaluate(target, Vec::new()).await;
    assert_eq!(target.trim(), "- name: registry");
    // The page counts the candidate's answers by resource, and shows an example of each kind of difference as a diff.
    let counted = browser.texts("table.comparisons tbody td").await;
    assert_eq!(counted, ["1", "0", "0", "2", "0"]);
    let examples = browser.texts("details.sample summary").await;
    assert_eq!(examples.len(), 1, "{examples:?}");
    browser.click("details.sample summary", "Would change").await;
    browser
        .find_with("details.sample td.added", "other.example.com/hub")
        .await;
    browser.save_pictures("chain").await;

    browser.click("a.button", "Promote").await;
    browser.find_with("table.diff td.added", "other.example.com/hub").await;
    browser.save_pictures("promote").await;
    browser.click("button", "Promote").await;
    browser.find_with("h1", "Chain images").await;
    assert_eq!(browser.find_all("section.candidate").await.len(), 0);
    let chain_text = fs::read_to_string(server.directory.path().join("chains/images.yaml")).unwrap();
    assert!(
        chain_text.contains("other.example.com") && !chain_text.contains("candidate"),
        "{chain_text}"
    );
    let review = pod_review("after", "shop", "web", "nginx:1.29");
    let answer = server.review("/admit", &review).await;
    assert!(answer.patch().unwrap().to_string().contains("other.example.com"));
    browser.end(&origin).await;
}

#[tokio::test]
async fn a_rollback_in_the_console_asks_for_confirmation() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server(CONFIG).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    let file = server.directory.path().join("chains/images.yaml");
    fs::write(
        &file,
        images_chain().replace("mirror.example.com", "mistake.example.com"),
    )
    .unwrap();
    server
        .program
        .wait_for_status("the change", |status| status["revision"] == 2)
        .await
        .unwrap();

    browser.open(&url("/history")).await;
    let rows = browser.texts("table tbody tr").await;
    assert!(
        rows[0].contains("a change of definitions or modules") && rows[0].contains("live"),
        "{rows:?}"
    );
    assert!(
        rows[0].contains("AdmissionChain/images"),
        "what it changed, by name: {rows:?}"
    );
    browser.save_pictures("history").await;
    browser.click("th a", "2").await;
    browser.find_with("table.diff td.removed", "mirror.example.com").await;
    browser.find_with("table.diff td.added", "mistake.example.com").await;
    browser.save_pictures("revision").await;
    // Any two revisions can be compared, and each comparison has its own URL.
    browser.open(&url("/history/1?from=2")).await;
    browser.find_with("table.diff td.added", "mirror.example.com").await;

    browser.click("a.button", "Roll back").await;
    browser.find_with("h1", "Roll back to revision 1").await;
    browser.find_with("table.diff td.added", "mirror.example.com").await;
    browser.save_pictures("rollback").await;
    browser.click("button", "Roll back").await;
    browser.find_with("h1", "Revision 3").await;
    browser.find_with("dd", "a rollback to 1").await;
    let answer = server
        .review("/admit", &pod_review("after", "shop", "web", "nginx:1.29"))
        .await;
    assert!(answer.patch().unwrap().to_string().contains("mirror.example.com"));

    // While the user has the page that confirms the rollback open, another change goes live.
    browser.open(&url("/history/2/rollback")).await;
    fs::write(&file, images_chain().replace("mirror.example.com", "third.example.com")).unwrap();
    server
        .program
        .wait_for_status("the change", |status| status["revision"] == 4)
        .await
        .unwrap();
    browser.click("button", "Roll back").await;
    browser
        .find_with(".notice.bad", "revision 4 went live in the meantime")
        .await;
    browser.assert_only_failed_with("409").await;
    browser.open(&url("/history/77")).await;
    browser.find_with(".notice.bad", "77").await;
    browser.take_errors().await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn an_emptied_file_is_reported_and_its_chain_stays_live() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server(CONFIG).await;
    let origin = server.program.admin_url("");
    let file = server.directory.path().join("chains/owners.yaml");
    for broken_text in ["", "kind: AdmissionChain\nmetadata: {"] {
        fs::write(&file, broken_text).unwrap();
        let is_reported = |status: &serde_json::Value| !status["problem"].is_null();
        server.program.wait_for_status("the loss", is_reported).await.unwrap();
        for page in ["/live", "/chains", "/history", "/applies", "/playground", "/health"] {
            browser.open(&server.program.admin_url(page)).await;
            browser
                .find_with(".alert.bad", "The newest definitions are not live")
                .await;
            browser.find_with(".alert.bad .mistake", "chains/owners.yaml").await;
        }
        browser.open(&server.program.admin_url("/chains")).await;
        browser.find_with("table tbody tr", "owners").await;
        fs::write(&file, OWNERS).unwrap();
        let is_settled = |status: &serde_json::Value| status["problem"].is_null();
        server
            .program
            .wait_for_status("the correction", is_settled)
            .await
            .unwrap();
    }
    browser.take_errors().await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn a_stage_can_be_disabled_for_a_limited_time() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server(CONFIG).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/chains/Mutating/images")).await;
    browser.click("details.switch summary", "Disable it for a time").await;
    browser.write("input[name=reason]", "incident 4711").await;
    browser.save_pictures("switch").await;
    browser.click("details.switch button", "Disable").await;
    browser.find_with(".notice.warn", "incident 4711").await;
    browser.find_with(".notice.warn", "by loopback").await;
    assert_eq!(browser.find_all("section.stage h3 .badge.good").await.len(), 0);
    browser
        .find_with(".alert.warn", "Mutating:images/registry is disabled")
        .await;
    browser.save_pictures("disabled").await;
    for page in ["/", "/chains"] {
        browser.open(&server.program.admin_url(page)).await;
        let row = "table.chains tbody tr:has(a[href='/chains/Mutating/images'])";
        browser.find_with(&format!("{row} .badge.warn"), "disabled").await;
        assert_eq!(browser.find_all(&format!("{row} .badge.good")).await.len(), 0, "{page}");
    }
    browser.open(&server.program.admin_url("/chains/Mutating/images")).await;
    // The stage is disabled, so it does not deny this Pod.
    let latest = pod_review("off", "shop", "web", "nginx");
    assert!(server.review("/admit", &latest).await.is_allowed());
    browser.click("button", "Enable it now").await;
    browser
        .find_with("details.switch summary", "Disable it for a time")
        .await;
    assert_eq!(browser.find_all(".notice.warn").await.len(), 0);
    let latest = pod_review("on", "shop", "web", "nginx");
    assert!(!server.review("/admit", &latest).await.is_allowed());

    browser.click("details.switch summary", "Disable it for a time").await;
    browser.write("input[name=reason]", "incident 4712").await;
    browser.click("select[name=audit] option", "Audit").await;
    browser.click("details.switch button", "Disable").await;
    browser.find_with(".notice.warn", "only audited").await;
    let latest = pod_review("audited", "shop", "web", "nginx");
    assert!(server.review("/admit", &latest).await.is_allowed());
    browser.end(&origin).await;
}

async fn assert_rollout(browser: &Browser, state: &str, share: &str, buttons: &[&str]) {
    browser.find_with("section.candidate h3", state).await;
    let decides = format!("The candidate decides {share} of the requests, by uid");
    browser.find_with("section.candidate p", &decides).await;
    let selector = "section.candidate form[action='/rollout'] button";
    if let Some(last) = buttons.last() {
        browser.find_with(selector, last).await;
    }
    assert_eq!(browser.texts(selector).await, buttons, "{state} {share}");
}

#[tokio::test]
async fn buttons_in_the_console_control_a_rollout() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let rollout = "        rollout: { steps: [50, 100], by: uid, pause: 1h }\n";
    let server = sign_in::start_server_with_chains(&(images_chain() + rollout)).await;
    let origin = server.program.admin_url("");
    let page = server.program.admin_url("/chains/Mutating/images");
    browser.open(&page).await;
    sign_in::sign_in(&browser, ADMIN_TOKEN).await;
    let progressing = ["Begin the next step", "Pause", "Abort"];
    assert_rollout(&browser, "progressing", "50%", &progressing).await;
    browser.assert_only_failed_with("401").await;
    browser.click("button", "Pause").await;
    let paused = ["Begin the next step", "Resume", "Abort"];
    assert_rollout(&browser, "paused", "50%", &paused).await;
    browser
        .find_with("section.candidate .notice.warn", "paused by token ops")
        .await;
    browser.click("button", "Resume").await;
    assert_rollout(&browser, "progressing", "50%", &progressing).await;
    browser.click("button", "Begin the next step").await;
    assert_rollout(&browser, "progressing", "100%", &progressing).await;

    let decided_by = async |uid: &str, host: &str| {
        let answer = server
            .review("/admit", &pod_review(uid, "shop", "web", "nginx:1.29"))
            .await;
        let patch = answer.patch().unwrap().to_string();
        assert!(patch.contains(host), "{patch}");
    };
    decided_by("by-candidate", "other.example.com").await;
    wait_until("the decision is counted", async || {
        browser.open(&page).await;
        browser.texts("section.candidate td[data-label=Decided]").await == ["1"]
    })
    .await;
    browser.find_with("ol.steps li[aria-current] time", "in 5").await;
    let limits = browser.texts("section.candidate td[data-label=Limit]").await;
    assert_eq!(limits, ["5", "5"]);
    assert_eq!(browser.find_all("section.candidate td.meter svg").await.len(), 2);
    browser.save_pictures("rollout").await;

    browser.click("button", "Abort").await;
    assert_rollout(&browser, "aborted", "0%", &["Resume"]).await;
    browser
        .find_with("section.candidate .notice.warn", "aborted by token ops")
        .await;
    decided_by("by-plugin", "mirror.example.com").await;
    browser.click("button", "Resume").await;
    assert_rollout(&browser, "progressing", "50%", &progressing).await;
    assert_eq!(browser.take_errors().await, Vec::<String>::new());

    // A user with the role `Read` sees the rollout without buttons. A form that is sent anyway is refused.
    browser.click("button", "Sign out").await;
    browser.find_with(".notice.good", "You are signed out").await;
    browser.open(&page).await;
    sign_in::sign_in(&browser, READER_TOKEN).await;
    assert_rollout(&browser, "progressing", "50%", &[]).await;
    browser.take_errors().await;
    let send = "
        const form = document.querySelector('form[action=\"/sign-out\"]');
        form.action = '/rollout';
        for (const [name, value] of [['stage', 'images/registry'], ['action', 'abort']]) {
            const field = document.createElement('input');
            [field.name, field.value] = [name, value];
            form.append(field);
        }
        form.submit();";
    browser.evaluate::<()>(send, Vec::new()).await;
    browser.find_with(".notice.bad", "the role Admin is required").await;
    browser.assert_only_failed_with("403").await;
    browser.open(&page).await;
    assert_rollout(&browser, "progressing", "50%", &[]).await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_console_lists_the_chains_that_apply_to_a_kind() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server(CONFIG).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/applies")).await;
    browser.write("input[name=kind]", "v1/Pod").await;
    browser.write("input[name=namespace]", "kube-system").await;
    browser.click("button", "What applies?").await;
    let stage = browser
        .find_with("#answer section tr", "registry")
        .await
        .text()
        .await
        .unwrap();
    assert!(
        stage.contains("no") && stage.contains("\"kube-system\" is excluded"),
        "{stage}"
    );
    let other = browser.find_with("#answer tr", "owners").await.text().await.unwrap();
    assert!(other.contains("`resources` has configmaps"), "{other}");
    browser.save_pictures("applies").await;
    // The filled-in form is in the page's URL, so that the page can be shared as a link.
    let address = browser.current_url().await;
    assert!(
        address.contains("kind=v1%2FPod") && address.contains("namespace=kube-system"),
        "{address}"
    );

    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a, namespace: b, labels: { checked: \"yes\" } }\n";
    browser.open(&server.program.admin_url("/applies")).await;
    browser.edit("object", object).await;
    browser.click("button", "What applies?").await;
    let stage = browser
        .find_with("#answer section tr", "owner")
        .await
        .text()
        .await
        .unwrap();
    assert!(stage.contains("yes"), "{stage}");
    browser.save_pictures("applies-object").await;
    browser.edit("object", "a: b: c").await;
    browser.click("button", "What applies?").await;
    browser.find_with(".notice.bad", "Object, line 1").await;
    browser.assert_only_failed_with("422").await;
    browser.end(&origin).await;
}

/// A user with the role `Read` sees everything but buttons, and requests for changes are refused.
#[tokio::test]
async fn a_user_with_the_read_role_sees_no_buttons() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = sign_in::start_server().await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    server.send_three_pods().await;
    browser.open(&url("/chains")).await;
    sign_in::sign_in(&browser, READER_TOKEN).await;
    browser.find_with("h1", "Chains").await;
    // The sign-in page is a reply with 401, which the browser reports as an error.
    browser.take_errors().await;
    for (path, heading) in [
        ("/", "Overview"),
        ("/chains", "Chains"),
        ("/chains/Mutating/images", "Chain images"),
        ("/history", "History"),
        ("/history/1", "Revision 1"),
        ("/applies?kind=v1%2FPod", "What applies?"),
        ("/playground", "Playground"),
    ] {
        browser.open(&url(path)).await;
        browser.find_with("h1", heading).await;
        let buttons = browser.texts("main button, main a.button").await;
        let expected: &[&str] = if path.starts_with("/applies") {
            &["What applies?"]
        } else {
            &[]
        };
        assert_eq!(buttons, expected, "{path}");
    }
    assert_eq!(browser.take_errors().await, Vec::<String>::new());
    for path in [
        "/history/1/rollback",
        "/promote?stage=images/registry",
        "/playground?chain=Mutating:images",
    ] {
        browser.open(&url(path)).await;
        browser.find_with(".notice.bad", "the role Admin is required").await;
    }
    browser.take_errors().await;
    browser.end(&origin).await;
}
