//! Opens the console in Chromium, as users do.

use std::{env, fs, path::PathBuf, process::Stdio, sync::Arc};

use admittance_tests::{Client, POLL_INTERVAL, TEST_TIMEOUT, repository};
use bytes::Bytes;
use http::{Request, Response};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{
    By, ChromiumLikeCapabilities as _, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver, WebElement,
    error::{WebDriverError, WebDriverResult},
    extensions::query::ElementQueryable as _,
    session::http::{Body, HttpClient},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::{Mutex, MutexGuard},
};

/// Lets one browser run at a time, because each needs several hundred megabytes and both cores.
static BROWSER_LOCK: Mutex<()> = Mutex::const_new(());

pub(crate) struct Browser {
    page: WebDriver,
    _driver: DriverProcess,
    _profile: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// The WebDriver and the browsers that it started, which are killed together.
struct DriverProcess(Child);

impl Drop for DriverProcess {
    fn drop(&mut self) {
        let group = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Browser {
    /// Waits until no other browser runs, and starts one. Returns `None` if `cargo task test` found no browser.
    pub(crate) async fn start() -> Option<Self> {
        let Some(program) = env::var_os("ADMITTANCE_TEST_CHROMEDRIVER") else {
            eprintln!(
                "skipped: ADMITTANCE_TEST_CHROMEDRIVER is not set, since `cargo task test` could not install the \
                 browser; it says why"
            );
            return None;
        };
        let turn = BROWSER_LOCK.lock().await;
        let mut driver = Command::new(program)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let driver = DriverProcess(driver);
        let port = loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // The WebDriver would block if nothing read its output.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let profile = tempfile::tempdir().unwrap();
        let mut capabilities = DesiredCapabilities::chrome();
        let directory = format!("--user-data-dir={}", profile.path().display());
        for argument in [
            "--headless=new",
            // Chromium's own sandbox does not work for root, and tests may run as root.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            &directory,
        ] {
            capabilities.add_arg(argument).unwrap();
        }
        for log in ["browser", "performance"] {
            capabilities.set_logging_prefs(log, LoggingPrefsLogLevel::All).unwrap();
        }
        let address = format!("http://127.0.0.1:{port}");
        let client = DriverClient(Client::new().unwrap());
        let page = WebDriver::builder(address, capabilities).client(client).await.unwrap();
        let browser = Self {
            page,
            _driver: driver,
            _profile: profile,
            _turn: turn,
        };
        browser.emulate_screen("light", [1280, 900]).await;
        Some(browser)
    }

    pub(crate) async fn open(&self, url: &str) {
        self.page.goto(url).await.unwrap();
    }

    pub(crate) async fn current_url(&self) -> String {
        self.page.current_url().await.unwrap().to_string()
    }

    /// Waits for an element that matches the selector and contains this text, and returns the first one.
    pub(crate) async fn find_with(&self, selector: &str, text: &str) -> WebElement {
        let expected_text = text.to_owned();
        let has_text = move |element: WebElement| {
            let needle = expected_text.clone();
            // The page may replace the element while its text is read, so an error counts as no match.
            async move { Ok(element.text().await.is_ok_and(|text| text.contains(&needle))) }
        };
        let query = self.page.query(By::Css(selector)).wait(TEST_TIMEOUT, POLL_INTERVAL);
        match query.with_filter(has_text).first().await {
            Ok(element) => element,
            Err(error) => panic!(
                "{selector} with {text:?}: {error}; the page:\n{}",
                self.page_text().await
            ),
        }
    }

    /// Waits for an element that matches the selector, and returns the first one.
    pub(crate) async fn find(&self, selector: &str) -> WebElement {
        self.find_with(selector, "").await
    }

    pub(crate) async fn find_all(&self, selector: &str) -> Vec<WebElement> {
        self.page.find_all(By::Css(selector)).await.unwrap()
    }

    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)";
        self.evaluate(script, vec![json!(selector)]).await
    }

    pub(crate) async fn page_text(&self) -> String {
        self.evaluate("return document.body.innerText", Vec::new()).await
    }

    pub(crate) async fn click(&self, selector: &str, text: &str) {
        self.find_with(selector, text).await.click().await.unwrap();
    }

    pub(crate) async fn write(&self, selector: &str, text: &str) {
        let field = self.find(selector).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    pub(crate) async fn press(&self, keys: impl Into<thirtyfour::TypingData>) {
        let focused = self.page.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    pub(crate) async fn evaluate<T: serde::de::DeserializeOwned>(&self, script: &str, arguments: Vec<Value>) -> T {
        let returned = self.page.execute(script, arguments).await;
        returned.unwrap().convert().unwrap()
    }

    /// Saves screenshots of the page in `target/console`: light, dark, and on a small screen.
    pub(crate) async fn save_pictures(&self, name: &str) {
        let directory = repository().join("target/console");
        fs::create_dir_all(&directory).unwrap();
        for (kind, scheme, size) in [
            ("light", "light", [1280, 900]),
            ("dark", "dark", [1280, 900]),
            ("small", "light", [360, 780]),
        ] {
            self.emulate_screen(scheme, size).await;
            let width: u64 = self
                .evaluate("return document.documentElement.scrollWidth", Vec::new())
                .await;
            assert!(
                width <= size[0],
                "{name}: the page is {width} wide on a screen of {}",
                size[0]
            );
            let picture = self.page.screenshot_as_png().await.unwrap();
            fs::write(directory.join(format!("{name}-{kind}.png")), picture).unwrap();
        }
        self.emulate_screen("light", [1280, 900]).await;
    }

    /// Emulates a user preference by setting this CSS media feature. All other media features get their defaults.
    pub(crate) async fn set_preference(&self, feature: &str, value: &str) {
        let media = json!({"features": [{"name": feature, "value": value}]});
        let cdp = self.page.cdp();
        cdp.send_raw("Emulation.setEmulatedMedia", media).await.unwrap();
    }

    /// Replaces the matches of regular expressions in all text on the page and in its editors.
    pub(crate) async fn replace_texts(&self, replacements: &[(&str, &str)]) {
        let script = "
            const change = (text) => arguments[0].reduce((text, [from, to]) => text.replace(new RegExp(from, 'g'), to), text);
            const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) texts.currentNode.data = change(texts.currentNode.data);
            for (const editor of document.querySelectorAll('textarea')) editor.value = change(editor.value);";
        self.evaluate::<()>(script, vec![json!(replacements)]).await;
    }

    pub(crate) async fn emulate_screen(&self, scheme: &str, [width, height]: [u64; 2]) {
        let cdp = self.page.cdp();
        self.set_preference("prefers-color-scheme", scheme).await;
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        cdp.send_raw("Emulation.setDeviceMetricsOverride", screen)
            .await
            .unwrap();
    }

    /// Returns the errors in the browser's console since the last call.
    pub(crate) async fn take_errors(&self) -> Vec<String> {
        let entries = self.page.browser_log().await.unwrap();
        let errors = entries
            .into_iter()
            .filter(|entry| entry.level != "INFO" && entry.level != "DEBUG");
        errors.map(|entry| entry.message).collect()
    }

    /// Checks that all errors in the browser's console since the last call come from replies with this status.
    pub(crate) async fn assert_only_failed_with(&self, status: &str) {
        let errors = self.take_errors().await;
        assert!(errors.iter().all(|error| error.contains(status)), "{errors:#?}");
    }

    /// Closes the browser, after checking that there were no errors and no requests to other origins.
    pub(crate) async fn end(self, origin: &str) {
        let errors = self.take_errors().await;
        assert!(errors.is_empty(), "{errors:#?}");
        let mut requests = 0;
        for entry in self.page.get_log("performance").await.unwrap() {
            let entry: Value = serde_json::from_str(&entry.message).unwrap();
            let message = &entry["message"];
            let parameter = |name: &str| message["params"][name].as_str().unwrap_or_default();
            // Only the console's requests are checked, not the requests of the browser's own pages, such as a new tab.
            if message["method"] == "Network.requestWillBeSent" && !parameter("documentURL").starts_with("chrome") {
                let url = message["params"]["request"]["url"].as_str().unwrap();
                assert!(
                    url.starts_with(origin) || url.starts_with("data:"),
                    "a request to {url}"
                );
                requests += 1;
            }
        }
        assert!(requests > 0, "no request was logged");
        self.page.quit().await.unwrap();
    }
}

struct DriverClient(Client);

#[async_trait::async_trait]
impl HttpClient for DriverClient {
    async fn send(&self, request: Request<Body<'_>>) -> WebDriverResult<Response<Bytes>> {
        let request = request.map(|body| match body {
            Body::Empty => Bytes::new(),
            Body::Json(value) => value.to_string().into(),
        });
        let error = |error: admittance_tests::Error| WebDriverError::HttpError(error.to_string());
        let reply = self.0.send(request).await.map_err(error)?;
        let mut response = Response::new(reply.body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        Ok(response)
    }

    async fn new(&self) -> Arc<dyn HttpClient> {
        // A client on the runtime of the test would never get a reply. So this client has a runtime of its own.
        Arc::new(Self(Client::new().unwrap()))
    }
}

pub(crate) fn artefact_directory() -> PathBuf {
    repository().join("target/console")
}
