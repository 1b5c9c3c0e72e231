//! Tests the playground of the console, in which users try definitions.

use std::fs;

use admittance_tests::{Client, FakeUpstream, Serve, repository};
use http::{Method, Request};
use serde_json::{Value, json};

use super::{chains, pod_review};
use crate::{
    browser::Browser,
    kubernetes::server::Server,
    scene::{run_test_cases, source},
};

impl Browser {
    /// Replaces the text of the editor with this name as if the user had pasted it.
    pub(super) async fn edit(&self, name: &str, text: &str) {
        // The editor is a custom element that has no `value` until its script has run, so the test waits for it.
        let script = "
            const area = document.getElementById(arguments[0]);
            return customElements.whenDefined('code-editor').then(() => {
                area.closest('code-editor').value = arguments[1];
                area.dispatchEvent(new InputEvent('input', { bubbles: true }));
            });";
        let _: Value = self.evaluate(script, vec![json!(name), json!(text)]).await;
    }

    pub(super) async fn editor_text(&self, name: &str) -> String {
        self.evaluate("return document.getElementById(arguments[0]).value", vec![json!(name)])
            .await
    }

    async fn type_into_editor(&self, name: &str, keys: impl AsRef<str>) {
        self.find(&format!("#{name}"))
            .await
            .send_keys(keys.as_ref())
            .await
            .unwrap();
    }
}

fn images_chain() -> String {
    let text = chains();
    text.split("---\n").next().unwrap().to_owned()
}

const POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: web, namespace: shop }
spec:
  containers:
    - { name: web, image: \"nginx:1.29\" }
";

#[tokio::test]
async fn the_playground_shows_verdicts_while_a_user_types() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);

    browser.open(&url("/playground")).await;
    browser.click("button", "Evaluate").await;
    browser.find_with("#outcome h2", "denied").await;
    browser
        .find_with("#outcome .notice.bad", "a Pod needs the label owner")
        .await;
    browser.save_pictures("playground-denied").await;

    browser.open(&url("/chains/Mutating/images")).await;
    browser.click("a.button", "Try it in the playground").await;
    let text = browser.editor_text("definitions").await;
    assert!(text.contains("name: images"), "{text}");
    browser.edit("definitions", &images_chain()).await;
    browser.edit("object", POD).await;
    browser.find_with("#outcome h2", "changed").await;
    let row = browser
        .find("#outcome table.timeline tbody tr")
        .await
        .text()
        .await
        .unwrap();
    assert!(row.contains("images/registry") && row.contains("patch"), "{row}");
    browser
        .find_with("#outcome td.added", "mirror.example.com/docker-hub/library/nginx:1.29")
        .await;
    browser.save_pictures("playground").await;

    browser
        .edit("settings", "registry: { rewrites: { docker.io: third.example.com } }")
        .await;
    browser
        .find_with("#outcome td.added", "third.example.com/library/nginx:1.29")
        .await;
    browser.edit("settings", "registry:\n  ").await;
    browser.find("#outcome:not([aria-busy])").await;
    browser.type_into_editor("settings", "refu").await;
    browser.find_with("#settings-choices li", "refuseLatest").await;
    browser.save_pictures("playground-completion").await;
    browser.type_into_editor("settings", "\u{e004}true").await;
    assert_eq!(browser.editor_text("settings").await, "registry:\n  refuseLatest: true");

    // Each mistake is reported with its line, and the editor marks this line.
    browser.edit("settings", "").await;
    browser
        .edit("definitions", &images_chain().replace("rules:", "rulez:"))
        .await;
    browser.find_with("#outcome .notice.bad", "spec.rulez").await;
    browser.find_with("#outcome a", "Chain, line 5").await;
    let marked = browser.texts(".numbers .marked").await;
    assert_eq!(marked, ["5"]);
    browser.save_pictures("playground-mistake").await;
    browser.edit("definitions", &images_chain()).await;
    browser.edit("object", "metadata: {}").await;
    browser.find_with("#outcome .notice.bad", "it has no `kind`").await;

    // Evaluations in the playground are neither counted in the status nor listed as decisions.
    let status = server.program.status().await.unwrap();
    assert_eq!(status["chains"][0]["stages"][0]["calls"]["total"], 0);
    browser.open(&url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    assert_eq!(browser.find_all("table.live tbody tr").await.len(), 0);
    browser.assert_only_failed_with("422").await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn a_looping_plugin_delays_no_other_request() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("sandbox: { callsInFlight: 1 }\n", &chains()).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/playground")).await;
    for (behaviour, failure) in [("loops-forever", "timeout"), ("grows-memory", "memory")] {
        let text = images_chain()
            .replace(&source("image-policy"), &source("guest-misbehaves"))
            .replace(
                "rewrites: { docker.io: mirror.example.com/docker-hub }, refuseLatest: true",
                &format!("behaviour: {behaviour}"),
            );
        browser.edit("definitions", &text).await;
        browser.edit("object", POD).await;
        browser.find("#outcome[aria-busy]").await;
        // While the playground evaluates, the live chains answer, although only one plugin call at a time is allowed.
        for number in 0..5 {
            let review = pod_review(&format!("{behaviour}-{number}"), "shop", "web", "nginx:1.29");
            assert!(server.review("/admit", &review).await.is_allowed());
        }
        browser.find_with("#outcome h2", "failed").await;
        browser.find_with("#outcome table.timeline td code", failure).await;
    }
    browser.save_pictures("playground-loops").await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn edited_text_in_the_playground_can_be_saved_and_shared() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    browser.open(&url("/playground")).await;
    browser.edit("definitions", &images_chain()).await;
    browser.edit("object", POD).await;
    browser.find_with("#outcome h2", "changed").await;

    let script = "
        const [form, done] = [document.querySelector('form.playground'), arguments[0]];
        return fetch('/playground/test-case', { method: 'POST', body: new URLSearchParams(new FormData(form)) })
            .then(async (response) => [response.headers.get('content-disposition'), await response.text()]);";
    let [disposition, case]: [String; 2] = browser.evaluate(script, Vec::new()).await;
    assert!(disposition.starts_with("attachment"), "{disposition}");
    let (cases, chain) = (
        server.directory.path().join("case.yaml"),
        server.directory.path().join("images.yaml"),
    );
    fs::write(&cases, &case).unwrap();
    fs::write(&chain, images_chain()).unwrap();
    let tested = run_test_cases(&chain, &cases).await;
    assert_eq!(tested.code, Some(0), "{case}\n{}{}", tested.stdout, tested.stderr);

    // The copied link restores the definitions and the object, which are evaluated only when the user asks for it.
    browser.click(".sharing button", "Copy a link").await;
    browser.find_with(".sharing button", "Copied").await;
    let link = browser.current_url().await;
    browser.open(&url("/health")).await;
    browser.open(&link).await;
    browser.find_with("#outcome .notice", "This comes from a link").await;
    assert_eq!(browser.editor_text("object").await, POD);
    assert_eq!(browser.editor_text("definitions").await, images_chain());
    browser.type_into_editor("object", "\n").await;
    let outcome = browser.texts("#outcome h2").await;
    assert_eq!(outcome, Vec::<String>::new());
    browser.save_pictures("playground-link").await;
    browser.click("button", "Evaluate").await;
    browser.find_with("#outcome h2", "changed").await;
    browser.open(&url("/playground#nonsense")).await;
    browser
        .find_with("#outcome .notice.bad", "The link is incomplete")
        .await;
    browser.end(&origin).await;
}

/// Tab indents the text in an editor. Other keys move the focus out of the editor.
#[tokio::test]
async fn an_editor_does_not_trap_the_keyboard() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/playground")).await;
    let focused = async || -> String { browser.evaluate("return document.activeElement.id", Vec::new()).await };
    browser.edit("definitions", "").await;
    let (tab, escape, enter, down, shift) = ('\u{e004}', '\u{e00c}', '\u{e007}', '\u{e015}', '\u{e008}');
    browser.type_into_editor("definitions", format!("spec:{enter}ph")).await;
    browser
        .find_with("#definitions-choices li[aria-selected=true]", "phase")
        .await;
    browser.type_into_editor("definitions", format!("{tab}V")).await;
    browser.find_with("#definitions-choices li", "Validating").await;
    browser
        .type_into_editor("definitions", format!("{down}{enter}{enter}"))
        .await;
    assert_eq!(
        browser.editor_text("definitions").await,
        "spec:\n  phase: Validating\n  "
    );
    browser.type_into_editor("definitions", format!("{tab}a")).await;
    assert_eq!(
        browser.editor_text("definitions").await,
        "spec:\n  phase: Validating\n    a"
    );
    browser
        .type_into_editor("definitions", format!("{shift}{tab}{shift}"))
        .await;
    assert_eq!(
        browser.editor_text("definitions").await,
        "spec:\n  phase: Validating\n  a"
    );
    assert_eq!(focused().await, "definitions");
    browser.type_into_editor("definitions", format!("{escape}{tab}")).await;
    assert_eq!(focused().await, "object");
    browser.end(&origin).await;
}

/// A REST API has no AdmissionReviews, so for its chains, the playground takes the HTTP requests of clients.
#[tokio::test]
async fn the_playground_tries_rest_chains_with_http_requests() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let upstream = FakeUpstream::start().await.unwrap();
    let mut program = Serve::new(repository().join("docs/examples/services/admittance.yaml"))
        .unwrap()
        .upstream(&upstream.url())
        .start()
        .await
        .unwrap();
    let origin = program.admin_url("");
    browser.open(&program.admin_url("/playground")).await;
    let example = browser.editor_text("object").await;
    assert!(example.starts_with("PUT /v1/services/example\n"), "{example}");
    browser.click("button", "Evaluate").await;
    browser.find_with("#outcome td.added", "team: everyone").await;

    // At first, the playground offers an example of its own. As soon as a client has sent a request that matches the
    // chain, the playground offers this request instead.
    let request = Request::builder()
        .method(Method::PUT)
        .uri(program.url("/v1/services/web"))
        .header("content-type", "application/json")
        .body(r#"{"image": "nginx:1.29", "replicas": 8}"#)
        .unwrap();
    let reply = Client::new().unwrap().send(request).await.unwrap();
    assert_eq!(reply.status, 422);
    browser
        .open(&program.admin_url("/playground?chain=Mutating:services"))
        .await;
    let last = browser.editor_text("object").await;
    assert!(
        last.starts_with("PUT /v1/services/web\n") && last.contains("\"replicas\": 8"),
        "{last}"
    );
    browser.click("button", "Evaluate").await;
    browser.find_with("#outcome .notice.bad", "at most 5 replicas").await;
    browser.save_pictures("playground-rest").await;

    browser.edit("object", "PUT /v1/others/web\n\n{}").await;
    browser.find_with("#outcome .notice.bad", "no route matches").await;
    browser
        .edit("object", "PUT /v1/services/web\n\n{\n  \"replicas\": many\n}")
        .await;
    browser.find_with("#outcome a", "Object, line 4").await;
    assert_eq!(browser.texts(".numbers .marked").await, ["4"]);
    browser.assert_only_failed_with("422").await;
    browser.end(&origin).await;
    program.terminate().unwrap();
    program.wait_for_end().await.unwrap();
}

#[tokio::test]
async fn a_request_that_matches_no_chain_is_neither_allowed_nor_denied() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/playground")).await;
    browser
        .edit("object", "apiVersion: v1\nkind: Service\nmetadata: { name: web }\n")
        .await;
    browser.find_with("#outcome h2 .badge.plain", "not matched").await;
    browser.find_with("#outcome .notice", "Chain example: ").await;
    browser.find_with("#outcome", "`resources` has pods").await;
    assert!(browser.find_all("#outcome .badge.good").await.is_empty());
    browser.save_pictures("playground-unmatched").await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_playground_names_an_exception_that_matches() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let exception = "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionException
metadata: { name: old-images }
spec:
  owner: shop
  reason: the images move next month
  expires: 2999-01-01
  stages: [images/registry]
  namespaces: [shop]
";
    let server = Server::start("", &(chains() + exception)).await;
    let origin = server.program.admin_url("");
    browser.open(&server.program.admin_url("/playground")).await;
    browser.edit("definitions", &images_chain()).await;
    browser.edit("object", POD).await;
    browser
        .find_with("#outcome table.timeline", "let pass by the exception old-images")
        .await;
    browser.end(&origin).await;
}

#[tokio::test]
async fn an_editor_colours_its_text_and_marks_only_lines_that_exist() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    let page = server.program.admin_url("/playground");
    browser.open(&page).await;
    let text = "# why\nkind: Pod\nspec:\n  - name: \"a#b\"\n    replicas: 3\n    ready: true\n";
    browser.edit("object", text).await;
    let script = "return document.querySelector('#object').parentElement.querySelector('.colours').textContent";
    assert_eq!(
        browser.evaluate::<String>(script, Vec::new()).await,
        format!("{text}\n")
    );
    for (kind, expected) in [
        ("comment", &["# why"][..]),
        ("key", &["kind", "spec", "name", "replicas", "ready"]),
        ("string", &["\"a#b\""]),
        ("number", &["3"]),
        ("word", &["true"]),
    ] {
        let selector = format!(".field:has(#object) .colours .{kind}");
        assert_eq!(browser.texts(&selector).await, expected, "{kind}");
    }
    browser.edit("object", "{\"kind\": \"Pod\", \"a\": [1]}").await;
    assert_eq!(
        browser.texts(".field:has(#object) .colours .key").await,
        ["\"kind\"", "\"a\""]
    );

    browser.edit("object", "kind: Pod\nmetadata: {").await;
    browser.find(".field:has(#object) .numbers .marked").await;
    assert_eq!(browser.texts(".field:has(#object) .numbers div").await, ["1", "2"]);

    browser.open(&server.program.admin_url("/applies")).await;
    browser.edit("object", "kind: Pod\na: b: c").await;
    browser.click("button", "What applies?").await;
    browser.find_with(".numbers .marked", "2").await;
    browser.click("#answer a", "Object, line 2").await;
    let focused = "return [document.activeElement.id, document.activeElement.selectionStart]";
    let focused: (String, u64) = browser.evaluate(focused, Vec::new()).await;
    assert_eq!(focused, ("object".to_owned(), 10));
    browser.assert_only_failed_with("422").await;
    browser.end(&origin).await;
}
