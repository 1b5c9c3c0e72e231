use std::{sync::Arc, time::Duration};

use admittance_catalog::{Digest, Error, FetchProgress, Freshness, ModuleReference};

use crate::{
    scene::{CatalogScene, component},
    site::{ResponseFault, Site},
};

const MEGABYTE: usize = 1 << 20;

#[tokio::test]
async fn a_url_is_fetched_again_only_on_request() {
    let scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    let (first, second) = (component(1000, 1), component(1000, 2));
    site.put_file("/a.wasm", &first, Some("\"1\""));
    let (catalog, url) = (scene.catalog(), site.url("/a.wasm"));

    let module = scene.obtain(&catalog, &url).await.unwrap();
    assert_eq!(
        (module.bytes().as_ref(), module.digest()),
        (first.as_slice(), Digest::of_bytes(&first))
    );
    assert!(matches!(scene.take_progress().last(), Some(FetchProgress::Finished)));

    site.put_file("/a.wasm", &second, Some("\"2\""));
    let module = scene.obtain(&scene.catalog(), &url).await.unwrap();
    assert_eq!(module.digest(), Digest::of_bytes(&first));
    assert_eq!(site.requests().len(), 1);
    assert!(scene.take_progress().is_empty());

    let obtain_again = async || {
        let module = scene.obtain_with(&catalog, &url, None, Freshness::Resolve).await;
        module.unwrap().digest()
    };
    assert_eq!(obtain_again().await, Digest::of_bytes(&second));
    assert_eq!(obtain_again().await, Digest::of_bytes(&second));
    let known_tags: Vec<_> = site
        .requests()
        .iter()
        .map(|request| request.headers.get("if-none-match").cloned())
        .collect();
    assert_eq!(known_tags, [None, Some("\"1\"".to_owned()), Some("\"2\"".to_owned())]);

    let reference: ModuleReference = url.parse().unwrap();
    let module = catalog.load_stored(&reference, Digest::of_bytes(&first)).await.unwrap();
    assert_eq!(module.bytes(), first.as_slice());
    let error = catalog
        .load_stored(&reference, Digest::of_bytes("other"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoLongerStored { .. }), "{error}");
}

#[tokio::test]
async fn a_pinned_module_in_the_store_causes_no_request() {
    let scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    let bytes = component(1000, 1);
    site.put_file("/a.wasm", &bytes, None);
    site.put_file("/b.wasm", &bytes, None);
    let catalog = scene.catalog();
    let wrong = Some(Digest::of_bytes("other"));
    let error = scene
        .obtain_with(&catalog, &site.url("/a.wasm"), wrong, Freshness::PreferRecorded)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { .. }), "{error}");
    assert_eq!(scene.stored_files("partial"), [""; 0]);

    let right = Some(Digest::of_bytes(&bytes));
    for (path, freshness, request_count) in [
        ("/a.wasm", Freshness::PreferRecorded, 2),
        ("/a.wasm", Freshness::Resolve, 2),
        ("/b.wasm", Freshness::PreferRecorded, 2),
    ] {
        let module = scene.obtain_with(&catalog, &site.url(path), right, freshness).await;
        assert_eq!(module.unwrap().bytes(), bytes.as_slice());
        assert_eq!(site.requests().len(), request_count, "{path} {freshness:?}");
    }
}

#[tokio::test]
async fn an_interrupted_download_is_resumed() {
    let bytes = component(3 * MEGABYTE, 1);
    let tag = Some("\"1\"");
    for (tag, pinned, faults, ranges) in [
        (
            tag,
            false,
            vec![ResponseFault::Cut(MEGABYTE)],
            vec![None, Some(MEGABYTE)],
        ),
        // The connection breaks more often than a download may be attempted. But every attempt receives many bytes, and
        // such attempts do not count.
        (
            tag,
            false,
            vec![ResponseFault::Cut(MEGABYTE / 4); 8],
            (0..9)
                .map(|index| Some(index * MEGABYTE / 4).filter(|start| *start > 0))
                .collect(),
        ),
        // The server sends no validator (`ETag`), and the program does not know the digest of the module in advance. So
        // when the connection breaks, the program cannot know whether the server still has the same version, and starts
        // from the beginning.
        (None, false, vec![ResponseFault::Cut(MEGABYTE)], vec![None, None]),
        (
            None,
            true,
            vec![ResponseFault::Cut(MEGABYTE)],
            vec![None, Some(MEGABYTE)],
        ),
        (
            Some("W/\"1\""),
            false,
            vec![ResponseFault::Cut(MEGABYTE)],
            vec![None, None],
        ),
        (
            tag,
            false,
            vec![ResponseFault::Cut(MEGABYTE), ResponseFault::Whole],
            vec![None, Some(MEGABYTE)],
        ),
        (
            tag,
            false,
            vec![ResponseFault::Cut(MEGABYTE), ResponseFault::WrongPart],
            vec![None, Some(MEGABYTE), None],
        ),
    ] {
        for has_store in [true, false] {
            let mut scene = CatalogScene::new();
            if !has_store {
                scene.config.store = None;
            }
            let site = Site::start(&scene.authority).await;
            site.put_file("/a.wasm", &bytes, tag);
            site.add_faults(faults.clone());
            let pin = pinned.then(|| Digest::of_bytes(&bytes));
            let module = scene
                .obtain_with(&scene.catalog(), &site.url("/a.wasm"), pin, Freshness::PreferRecorded)
                .await
                .unwrap();
            assert!(module.bytes() == bytes.as_slice(), "{faults:?}");
            let ranges: Vec<_> = ranges
                .iter()
                .map(|start| start.map(|start: usize| format!("bytes={start}-")))
                .collect();
            assert_eq!(site.requested_ranges(), ranges, "{tag:?} {faults:?}");
        }
    }
}

#[tokio::test]
async fn a_partial_download_is_resumed_after_a_restart() {
    let bytes = component(2 * MEGABYTE, 1);
    for changed in [false, true] {
        let scene = CatalogScene::new();
        let site = Site::start(&scene.authority).await;
        site.put_file("/a.wasm", &bytes, Some("\"1\""));
        site.add_faults([ResponseFault::Stall(MEGABYTE + 1000)]);
        let (catalog, reference) = (scene.catalog(), site.url("/a.wasm"));
        let (stalled, wait) = tokio::sync::oneshot::channel();
        let stalled = std::sync::Mutex::new(Some(stalled));
        let task = tokio::spawn(async move {
            let reference: ModuleReference = reference.parse().unwrap();
            let tell = move |progress| {
                if let FetchProgress::Received { bytes } = progress
                    && bytes >= MEGABYTE as u64 + 1000
                    && let Some(stalled) = stalled.lock().unwrap().take()
                {
                    stalled.send(()).unwrap();
                }
            };
            let _ = catalog.obtain(&reference, None, Freshness::PreferRecorded, &tell).await;
        });
        wait.await.unwrap();
        let other = scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await.unwrap();
        assert!(other.bytes() == bytes.as_slice());
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());

        std::fs::remove_dir_all(scene.path("store/resolved")).unwrap();
        let store = admittance_catalog::Store::open(scene.path("store")).unwrap();
        let mut config = scene.config.clone();
        config.store = Some(store);
        let next = component(2 * MEGABYTE, 2);
        if changed {
            site.put_file("/a.wasm", &next, Some("\"2\""));
        }
        let catalog = admittance_catalog::Catalog::new(config).unwrap();
        let module = scene.obtain(&catalog, &site.url("/a.wasm")).await.unwrap();
        assert!(module.bytes() == if changed { &next } else { &bytes }.as_slice());
        let requests = site.requests();
        let last = &requests.last().unwrap().headers;
        // The program collects up to 256 KiB before it writes them to disk. If the download breaks, the bytes that are
        // not on disk yet are lost. So the last request starts a bit before the place where the download broke.
        let start: usize = last["range"]
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .unwrap();
        assert!((MEGABYTE * 3 / 4..=MEGABYTE + 1000).contains(&start), "{start}");
        assert_eq!(last["if-range"], "\"1\"");
        assert_eq!(scene.stored_files("partial"), [""; 0]);
        assert_eq!(scene.stored_files("temporary"), [""; 0]);
    }
}

#[tokio::test]
async fn server_faults_are_retried_or_reported() {
    let bytes = component(100_000, 1);
    // (faults of the server, expected number of requests, expected final error or `None` for success)
    for (faults, request_count, expected) in [
        (vec![ResponseFault::Status(503, None)], 2, None),
        (vec![ResponseFault::Status(500, None), ResponseFault::Cut(10)], 3, None),
        (vec![ResponseFault::Status(429, Some("1"))], 2, None),
        (vec![ResponseFault::Stall(10)], 2, None),
        (
            vec![ResponseFault::Status(429, Some("3600"))],
            1,
            Some("the server answered 429: Too Many Requests; it asks for a retry in 1h"),
        ),
        (
            vec![ResponseFault::Status(503, Some("Tue, 31 Dec 2999 23:59:59 GMT"))],
            1,
            Some("the server answered 503: Service Unavailable; it asks for a retry in "),
        ),
        (
            vec![ResponseFault::Status(502, None); 5],
            5,
            Some("the server answered 502: Bad Gateway"),
        ),
        (vec![ResponseFault::Cut(0); 5], 5, Some("cannot be reached: ")),
        (
            vec![ResponseFault::Status(403, None)],
            1,
            Some("was refused without credentials: Forbidden; "),
        ),
        (vec![ResponseFault::Status(410, None)], 1, Some("was not found: Gone; ")),
        (
            vec![ResponseFault::Status(418, None)],
            1,
            Some("the server answered 418: I'm a teapot"),
        ),
        (
            vec![ResponseFault::Length(1 << 40)],
            1,
            Some("has 1099511627776 bytes, more than the limit of 200000"),
        ),
        (
            vec![ResponseFault::Endless],
            1,
            Some("bytes, more than the limit of 200000"),
        ),
        (vec![ResponseFault::Length(500)], 1, Some("has the digest")),
        (vec![ResponseFault::Length(100_001); 5], 5, Some("cannot be reached: ")),
        (
            vec![ResponseFault::Redirect("http://localhost/a.wasm")],
            1,
            Some("invalid response: the server redirects to an address without TLS"),
        ),
        (
            vec![ResponseFault::Redirect("/a.wasm"); 20],
            11,
            Some("invalid response: too many redirects"),
        ),
        (vec![ResponseFault::Redirect("/b.wasm")], 2, None),
    ] {
        let mut scene = CatalogScene::new();
        scene.config.size_limit = 200_000;
        scene.config.network.read_timeout = Duration::from_millis(300);
        let site = Site::start(&scene.authority).await;
        site.put_file("/a.wasm", &bytes, None);
        site.put_file("/b.wasm", &bytes, None);
        site.add_faults(faults.clone());
        let pin = Some(Digest::of_bytes(&bytes));
        let result = scene
            .obtain_with(&scene.catalog(), &site.url("/a.wasm"), pin, Freshness::PreferRecorded)
            .await;
        match (result, expected) {
            (Ok(module), None) => assert_eq!(module.bytes(), bytes.as_slice()),
            (Err(error), Some(expected)) => {
                assert!(error.to_string().contains(expected), "{faults:?}: {error}");
                assert!(error.to_string().contains(&site.url("/a.wasm")), "{error}");
            }
            (result, _) => panic!("{faults:?}: {result:?}"),
        }
        assert_eq!(site.requests().len(), request_count, "{faults:?}");
        if let [ResponseFault::Status(429, Some("1"))] = faults.as_slice() {
            let retries = scene.take_retries();
            assert!(retries[0].0 >= Duration::from_secs(1), "{retries:?}");
        }
    }
}

/// A CDN in front of a registry may set a cookie and redirect, to see whether the client returns the cookie.
#[tokio::test]
async fn a_cookie_is_sent_only_to_its_origin() {
    let scene = CatalogScene::new();
    let (site, other) = (Site::start(&scene.authority).await, Site::start(&scene.authority).await);
    site.put_file("/a.wasm", &component(1000, 1), None);
    other.put_file("/b.wasm", &component(1000, 1), None);
    let elsewhere = other.url("/b.wasm").leak();
    site.add_faults([
        ResponseFault::Cookie("seen=1; Path=/; Secure; HttpOnly"),
        ResponseFault::Cookie("seen=2"),
        ResponseFault::Cookie("more=a=b"),
        ResponseFault::Redirect(elsewhere),
    ]);
    scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await.unwrap();
    let cookies = |site: &Site| -> Vec<_> {
        let requests = site.requests().into_iter();
        requests.map(|mut request| request.headers.remove("cookie")).collect()
    };
    let expected = [None, Some("seen=1"), Some("seen=2"), Some("seen=2; more=a=b")];
    assert_eq!(cookies(&site), expected.map(|cookie| cookie.map(str::to_owned)));
    assert_eq!(cookies(&other), [None]);
    let (catalog, url) = (scene.catalog(), site.url("/a.wasm"));
    let result = scene.obtain_with(&catalog, &url, None, Freshness::Resolve).await;
    result.unwrap();
    assert_eq!(cookies(&site).last(), Some(&None));
}

#[tokio::test]
async fn content_that_is_not_webassembly_is_refused() {
    let scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    site.put_file("/a.wasm", b"<!doctype html>", None);
    let catalog = scene.catalog();
    let error = scene.obtain(&catalog, &site.url("/a.wasm")).await.unwrap_err();
    assert!(matches!(error, Error::NotWebAssembly { .. }), "{error}");
    let error = scene.obtain(&catalog, &site.url("/b.wasm")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert_eq!(scene.stored_files("partial"), [""; 0]);
    assert_eq!(scene.stored_files("modules"), [""; 0]);
}

#[tokio::test]
async fn a_server_that_is_unreachable_or_lacks_trusted_tls_is_reported() {
    let mut scene = CatalogScene::new();
    scene.config.network.attempts = 2;
    let site = Site::start(&scene.authority).await;
    site.put_file("/a.wasm", &component(1000, 1), None);
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_url = format!("https://{}/a.wasm", plain.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        while let Ok((mut stream, _)) = plain.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = scene.obtain(&scene.catalog(), &plain_url).await.unwrap_err();
    assert!(error.to_string().contains("does not speak TLS on this port"), "{error}");

    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_url = format!("https://{}/a.wasm", closed.local_addr().unwrap());
    drop(closed);
    let error = scene.obtain(&scene.catalog(), &closed_url).await.unwrap_err();
    assert!(
        matches!(error, Error::Unreachable { .. }) && error.is_transient(),
        "{error}"
    );
    assert_eq!(scene.take_retries().len(), 1);

    scene.config.network.ca = None;
    let error = scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await.unwrap_err();
    assert!(error.to_string().contains("name the CA's file"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn concurrent_requests_for_a_module_share_one_fetch() {
    let scene = Arc::new(CatalogScene::new());
    let site = Site::start(&scene.authority).await;
    let bytes = component(MEGABYTE, 1);
    site.put_file("/a.wasm", &bytes, None);
    for (faults, request_count) in [(vec![ResponseFault::Status(410, None)], 1), (Vec::new(), 2)] {
        let catalog = scene.catalog();
        let failing = !faults.is_empty();
        site.add_faults(faults);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (scene, catalog, url) = (scene.clone(), catalog.clone(), site.url("/a.wasm"));
                tokio::spawn(async move { scene.obtain_with(&catalog, &url, None, Freshness::Resolve).await })
            })
            .collect();
        for task in tasks {
            let result = task.await.unwrap();
            assert_eq!(result.is_err(), failing, "{result:?}");
        }
        assert_eq!(site.requests().len(), request_count);
    }
}
