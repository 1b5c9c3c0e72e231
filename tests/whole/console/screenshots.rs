//! The manual's screenshots, which `cargo task screenshots` copies from `target/console` to `docs/console`.

use std::{collections::BTreeSet, env, fs};

use admittance_tests::repository;

use super::{pod_review, steering};
use crate::{
    browser::Browser,
    kubernetes::server::Server,
    scene::{self, source},
};

/// The pages of which the manual has screenshots: (name of the screenshot, path of the page, text that appears on it).
const PAGES: [(&str, &str, &str); 10] = [
    ("overview", "/", "Requests, last hour"),
    ("live", "/live", "shop/cart"),
    ("decision", "/decisions/cart-3", "image"),
    ("chains", "/chains", "images"),
    ("chain", "/chains/Mutating/images", "Compared answers"),
    ("history", "/history", "AdmissionChain/images"),
    ("revision", "/history/2", "rollout"),
    ("applies", "/applies?kind=v1/Pod&namespace=shop", "registry"),
    ("playground", "/playground?chain=Mutating:images&uid=web-3", "Evaluate"),
    ("health", "/health", "Listeners"),
];

async fn send_traffic(server: &Server) {
    for number in 0..40 {
        for (namespace, name, image) in [
            ("shop", "web", "nginx:1.29"),
            ("shop", "cart", "shop/cart:2.4"),
            ("billing", "invoices", "mirror.example.com/billing:7"),
            ("search", "index", "opensearch:3.1"),
        ] {
            let image = if number % 13 == 3 && name == "cart" {
                "shop/cart"
            } else {
                image
            };
            let review = pod_review(&format!("{name}-{number}"), namespace, name, image);
            server.post("/admit", &review).await;
        }
    }
}

#[test]
fn the_manual_has_a_screenshot_of_each_page() {
    let page = fs::read_to_string(repository().join("docs/console.md")).unwrap();
    for (name, ..) in PAGES {
        assert!(page.contains(&format!("](console/{name}.png)")), "{name}");
    }
    let files: BTreeSet<_> = fs::read_dir(repository().join("docs/console"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, PAGES.map(|(name, ..)| format!("{name}.png")).into());
}

#[tokio::test]
async fn screenshots_of_the_manual_are_current() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = steering::server_with_rollout().await;
    let origin = server.program.admin_url("");
    send_traffic(&server).await;
    // The screenshots are for the manual, so the page must not show the paths on this machine. They are replaced by the
    // paths of an installation, such as `/etc/admittance`.
    let plugin = source("image-policy");
    let (plugins, _) = plugin.rsplit_once('/').unwrap();
    let [plugins, store, directory] = [
        plugins.strip_prefix("file:").unwrap(),
        scene::store().to_str().unwrap(),
        server.directory.path().to_str().unwrap(),
    ];
    let neutral = [
        (plugins, "/etc/admittance/plugins"),
        (store, "/var/lib/admittance/store"),
        (directory, "/etc/admittance"),
        // This last pattern matches any temporary path. The known temporary paths have been replaced before, so the
        // only path that is left for this pattern is the path of the history.
        (r"/\S*/\.tmp\w+", "/var/lib/admittance/history"),
    ];
    for (name, path, text) in PAGES {
        browser.open(&server.program.admin_url(path)).await;
        browser.find_with("main", text).await;
        if name == "playground" {
            browser.click("button", "Evaluate").await;
            browser.find_with("#outcome h2", "changed").await;
        }
        browser.replace_texts(&neutral).await;
        let page_text = browser.page_text().await;
        for private in [env::temp_dir(), repository()] {
            assert!(!page_text.contains(private.to_str().unwrap()), "{name}: {page_text}");
        }
        browser.save_pictures(&format!("manual-{name}")).await;
    }
    browser.end(&origin).await;
}
