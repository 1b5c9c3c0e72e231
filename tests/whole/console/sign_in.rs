//! Tests how users sign in to the console, and what users of each role see.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use tempfile::TempDir;

use super::chains;
use crate::{
    browser::Browser,
    kubernetes::server::{Server, certificates},
};

pub(super) const READER_TOKEN: &str = "the-token-of-who-reads";
pub(super) const ADMIN_TOKEN: &str = "the-token-of-who-changes";

const CONFIG: &str = "
dialect: { kubernetes: {} }
listen: { tls: { certificate: localhost.pem, key: localhost.key } }
definitions: [chains.yaml]
admin:
  address: 127.0.0.1:0
  tokens:
    - { name: board, role: Read, file: board.token }
    - { name: ops, role: Admin, file: ops.token }
";

fn write_token(directory: &Path, name: &str, token: &str) {
    let new = directory.join("new");
    fs::write(&new, token).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, directory.join(name)).unwrap();
}

pub(super) async fn start_server() -> Server {
    start_server_with_chains(&chains()).await
}

pub(super) async fn start_server_with_chains(chains: &str) -> Server {
    let directory: TempDir = tempfile::tempdir().unwrap();
    certificates(&directory, &[]).await;
    write_token(directory.path(), "board.token", READER_TOKEN);
    write_token(directory.path(), "ops.token", ADMIN_TOKEN);
    Server::start_in(directory, CONFIG, chains).await
}

pub(super) async fn sign_in(browser: &Browser, token: &str) {
    browser.write("input[name=token]", token).await;
    browser.click("button", "Sign in").await;
}

#[tokio::test]
async fn users_sign_in_to_the_console_with_a_token() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = start_server().await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    server.send_three_pods().await;

    let live_url = url("/live?verdict=denied");
    browser.open(&live_url).await;
    browser.find_with("h1", "Sign in").await;
    browser.save_pictures("sign-in").await;
    sign_in(&browser, "a-token-that-nobody-has").await;
    browser.find_with(".notice.bad", "This token is unknown").await;
    browser.save_pictures("sign-in-unknown").await;
    sign_in(&browser, READER_TOKEN).await;
    browser.find_with("table.live", "shop/cart").await;
    assert_eq!(browser.current_url().await, live_url);
    browser.find_with(".account", "token board, Read").await;
    let cookies: String = browser.evaluate("return document.cookie", Vec::new()).await;
    assert_eq!(cookies, "");

    // A user with the role `Read` sees decisions without objects. The only form is the one for signing out.
    browser.open(&url("/decisions/changed-1")).await;
    browser.find_with("table.timeline", "images/registry").await;
    browser.find_with("p.hint", "role Admin").await;
    let text = browser.page_text().await;
    assert!(!text.contains("docker-hub") && !text.contains("Test case"), "{text}");
    for path in ["/live", "/decisions/changed-1", "/health"] {
        browser.open(&url(path)).await;
        let forms = browser.find_all("form[method=post]").await;
        assert_eq!(forms.len(), 1, "{path}");
        assert_eq!(forms[0].attr("action").await.unwrap().unwrap(), "/sign-out");
    }

    browser.click("button", "Sign out").await;
    browser.find_with(".notice.good", "You are signed out").await;
    browser.open(&url("/health")).await;
    browser.find_with("h1", "Sign in").await;
    sign_in(&browser, ADMIN_TOKEN).await;
    browser.find_with(".account", "token ops, Admin").await;
    browser.open(&url("/decisions/changed-1")).await;
    browser.find_with("table.diff", "docker-hub").await;

    // The sign-in page is a reply with 401, which the browser reports as an error. There must be no other errors.
    browser.assert_only_failed_with("401").await;

    // A user who follows a link from another site stays signed in.
    let link = format!("data:text/html,<a href=\"{}\">here</a>", url("/health"));
    browser.open(&link).await;
    browser.click("a", "here").await;
    browser.find_with("h1", "Health").await;
    assert_eq!(browser.current_url().await, url("/health"));
    assert_eq!(browser.take_errors().await, Vec::<String>::new());

    browser.open(&url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    write_token(server.directory.path(), "ops.token", "another-token-of-who-changes");
    browser.find_with(".live-state", "The driver refused").await;
    browser.open(&url("/live")).await;
    browser.find_with(".notice.warn", "no longer valid").await;
    browser.save_pictures("sign-in-revoked").await;
    browser.assert_only_failed_with("401").await;
    browser.end(&origin).await;
}
