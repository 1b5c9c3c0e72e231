//! Tests the first page, the keyboard, and rules for every page: tables fit on small screens, colours are readable.

use thirtyfour::Key;

use super::chains;
use crate::{browser::Browser, kubernetes::server::Server};

const PAGES: [&str; 12] = [
    "/",
    "/live",
    "/decisions/changed-1",
    "/chains",
    "/chains/Mutating/images",
    "/chains/Validating/trial",
    "/history",
    "/history/1",
    "/applies?kind=v1/Pod&namespace=shop",
    "/playground",
    "/health",
    "/go",
];

#[tokio::test]
async fn the_overview_counts_the_requests_of_the_last_hour() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    // The first chain changes the Pod's image to one in the registry `mirror.example.com/docker-hub`. With these
    // settings, a later stage refuses this registry. The stage is in Audit mode, so it only reports that it would deny
    // the Pod.
    let audit = "settings: { refusedRegistries: [mirror.example.com/docker-hub] }";
    let chains = chains().replace("settings: { refuseLatest: true }", audit);
    assert!(chains.contains(audit), "{chains}");
    let server = Server::start("", &chains).await;
    let origin = server.program.admin_url("");
    let url = |path: &str| server.program.admin_url(path);
    browser.open(&url("/")).await;
    browser.find_with(".empty", "No request was refused").await;
    server.send_three_pods().await;
    browser.open(&url("/")).await;
    let figures = browser.texts(".card .figure").await;
    assert_eq!(figures[..4], ["3", "1", "1", "0"], "{figures:?}");
    let names = browser.texts(".card .name").await;
    assert!(
        names[0].starts_with("Requests") && names[2].starts_with("Denied"),
        "{names:?}"
    );
    assert_eq!(browser.find_all(".card svg.spark").await.len(), 6);
    browser
        .find_with("table.data tbody tr", "the start of the program")
        .await;
    browser.find_with("table.live tbody tr", "shop/cart").await;
    browser.save_pictures("overview").await;

    let mut numbers = Vec::new();
    for page in ["/", "/chains", "/live"] {
        browser.open(&url(page)).await;
        browser.find_with("table.chains tr", "trial").await;
        let script = "return [...document.querySelectorAll('table.chains tbody tr')]
            .filter((row) => row.textContent.includes('trial'))
            .flatMap((row) => [...row.querySelectorAll('td[data-label$=\"enied\"], td[data-label$=\"deny\"], td[data-label=p99]')])
            .map((cell) => cell.textContent.trim())";
        numbers.push(browser.evaluate::<Vec<String>>(script, Vec::new()).await);
    }
    let [denied, would_deny, p99] = numbers[0].as_slice() else {
        panic!("{numbers:?}")
    };
    assert_eq!((denied.as_str(), would_deny.as_str()), ("0", "1"));
    assert_ne!(p99, "0 µs");
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[0], numbers[2]);
    browser.end(&origin).await;
}

#[tokio::test]
async fn the_palette_and_lists_can_be_used_with_the_keyboard() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    server.send_three_pods().await;
    browser.open(&server.program.admin_url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    browser.press("/").await;
    browser.find_with("dialog.palette li", "Overview").await;
    browser.press("trial").await;
    browser.find_with("dialog.palette li", "Chain trial").await;
    browser.save_pictures("palette").await;
    browser.press(Key::Enter).await;
    browser.find_with("h1", "Chain trial").await;

    // Ctrl-K opens the palette, which finds pages. If the user types a text that is in no page's name, such as `cart`,
    // the palette offers to search the decisions for this text.
    browser.press(Key::Control + "k").await;
    browser.find_with("dialog.palette li", "Overview").await;
    browser.press("cart").await;
    browser.press(Key::Down).await;
    browser.press(Key::Enter).await;
    browser.find_with("table.live tbody tr", "shop/cart").await;
    assert_eq!(browser.current_url().await, server.program.admin_url("/live?text=cart"));

    browser.open(&server.program.admin_url("/live")).await;
    browser.find_with(".live-state", "Live").await;
    browser.press("j").await;
    let row = "return document.activeElement.closest('tr').textContent";
    let first: String = browser.evaluate(row, Vec::new()).await;
    browser.press("j").await;
    let second: String = browser.evaluate(row, Vec::new()).await;
    browser.press("k").await;
    assert_ne!(first, second);
    assert_eq!(browser.evaluate::<String>(row, Vec::new()).await, first);
    browser.end(&origin).await;
}

#[tokio::test]
async fn tables_fit_on_a_phone_screen() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    server.send_three_pods().await;
    browser.emulate_screen("light", [390, 844]).await;
    for page in PAGES.into_iter().chain(["/style"]) {
        browser.open(&server.program.admin_url(page)).await;
        browser.find("h1").await;
        // Navigation, code blocks and editors may be wider than the screen, because each of them has a scroll bar of
        // its own.
        let script = "return [...document.querySelectorAll('body *')]
            .filter((element) => !element.closest('nav, pre, textarea, code-editor, thead, .visually-hidden, .skip, svg'))
            .filter((element) => element.getBoundingClientRect().right > 390.5)
            .map((element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 60)}`)";
        let cut: Vec<String> = browser.evaluate(script, Vec::new()).await;
        assert!(cut.is_empty(), "{page}: {cut:#?}");
    }
    browser.end(&origin).await;
}

/// Finds text whose contrast is below 4.5 to 1, which WCAG 2 requires for level AA.
const CONTRAST_SCRIPT: &str = "
    const parse = (color) => {
      const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
      return color.startsWith('color(') ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
    };
    const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
    const ground = (element) => {
      if (!element) return [255, 255, 255];
      const own = parse(getComputedStyle(element).backgroundColor);
      return own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
    };
    const luminance = (color) => {
      const [r, g, b] = color.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const texts = [...document.querySelectorAll('body *')].filter((element) =>
      element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
    return texts.flatMap((element) => {
      const below = ground(element);
      const color = over(parse(getComputedStyle(element).color), below);
      const [dark, light] = [luminance(below), luminance(color)].sort((one, other) => one - other);
      const ratio = (light + 0.05) / (dark + 0.05);
      return ratio < 4.5 ? [`${element.tagName}.${element.className} ${ratio.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`] : [];
    })";

#[tokio::test]
async fn all_text_has_the_contrast_of_wcag_level_aa() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let server = Server::start("", &chains()).await;
    let origin = server.program.admin_url("");
    server.send_three_pods().await;
    for scheme in ["light", "dark"] {
        browser.emulate_screen(scheme, [1280, 900]).await;
        for page in PAGES.into_iter().chain(["/style"]) {
            browser.open(&server.program.admin_url(page)).await;
            browser.find("h1").await;
            let faint: Vec<String> = browser.evaluate(CONTRAST_SCRIPT, Vec::new()).await;
            assert!(faint.is_empty(), "{page}, {scheme}: {faint:#?}");
        }
    }
    browser.end(&origin).await;
}
