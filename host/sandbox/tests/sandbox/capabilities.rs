//! Tests of the capabilities that a stage can grant to its plugin.

use std::sync::{Arc, Mutex};

use admittance_admission::{
    ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline, FailureKind, Grants, Hook,
    HttpError, HttpGrant, HttpOrigin, HttpRequest, HttpResponse, HttpSender, Verdict,
};
use admittance_sandbox::{ConfigurationTime, PluginConfig};
use async_trait::async_trait;

use crate::{
    guest::{Guest, RESPONSE_ADDRESS, SCRATCH_ADDRESS, TEXT_ADDRESS},
    harness::{call, config, load, load_and_call, load_with, log_lines, request, sandbox, sandbox_with},
};

fn config_with_grants(grants: Grants) -> PluginConfig {
    PluginConfig { grants, ..config() }
}

const GET_IMPORT: &str = r#"(import "admittance:plugin/cluster@0.1.1" "get"
    (func $get (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;

fn get_call() -> String {
    format!(
        "(call $get (i32.const {}) (i32.const 2) (i32.const {}) (i32.const 4)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const {}) (i32.const 1) (i32.const {SCRATCH_ADDRESS}))",
        TEXT_ADDRESS,
        TEXT_ADDRESS + 2,
        TEXT_ADDRESS + 6
    )
}

fn cluster_reading_guest() -> Guest {
    // The guest reads a `result<option<json>, error>`, which contains either an object or an error. In both cases, a
    // tag is in front of the text, so the text is at the same offset.
    let deny = format!(
        "(i32.store8 (i32.const {verdict}) (i32.const 3))
         (i32.store (i32.const {message}) (i32.load (i32.const {text})))
         (i32.store (i32.const {message_length}) (i32.load (i32.const {length})))",
        verdict = RESPONSE_ADDRESS + 4,
        message = RESPONSE_ADDRESS + 20,
        message_length = RESPONSE_ADDRESS + 24,
        text = SCRATCH_ADDRESS + 8,
        length = SCRATCH_ADDRESS + 12
    );
    Guest::running(&format!("{}\n{deny}", get_call()))
        .with_items(GET_IMPORT)
        .with_data(TEXT_ADDRESS, b"v1Nodea")
}

#[derive(Debug, Default)]
struct Echo {
    requests: Mutex<Vec<String>>,
}

#[async_trait]
impl ClusterReader for Echo {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        Ok(Some(format!("{kind} {namespace:?} {name}")))
    }

    async fn list(
        &self,
        _kind: &ClusterKind,
        _query: &ClusterQuery,
        _deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        Err(ClusterError::Timeout)
    }
}

#[async_trait]
impl HttpSender for Echo {
    async fn send(
        &self,
        _grant: &HttpGrant,
        request: HttpRequest,
        _deadline: Deadline,
    ) -> Result<HttpResponse, HttpError> {
        if request.url.path() == "/private" {
            return Err(HttpError::Denied("that is a private address".to_owned()));
        }
        self.requests
            .lock()
            .unwrap()
            .push(format!("{} {}", request.method, request.url));
        Ok(HttpResponse::new(204, Vec::new()))
    }
}

#[derive(Debug)]
struct SilentControlPlane;

#[async_trait]
impl HttpSender for SilentControlPlane {
    async fn send(
        &self,
        _grant: &HttpGrant,
        _request: HttpRequest,
        _deadline: Deadline,
    ) -> Result<HttpResponse, HttpError> {
        std::future::pending().await
    }
}

fn denial_message(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Deny(denial) => &denial.message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plugin_reads_the_cluster_only_if_granted() {
    let failure = load_and_call(&cluster_reading_guest()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityDenied);
    assert!(
        failure.message.contains("add `v1/Node` to `allow.cluster`"),
        "{failure}"
    );

    let grants = Grants {
        cluster: [ClusterKind::new("v1", "Node")].into(),
        ..Grants::default()
    };
    // The guest gets either an object or an error, and returns its text. Two tags precede the text in both cases, so
    // the guest finds the text at the same address.
    let echo = sandbox_with(|config| config.cluster = Some(Arc::new(Echo::default())));
    for (sandbox, expected) in [
        (&echo, "v1/Node None a"),
        (sandbox(), "no control plane is configured on this host"),
    ] {
        let plugin = load_with(
            sandbox,
            &cluster_reading_guest(),
            "{}",
            &config_with_grants(grants.clone()),
        )
        .await
        .unwrap();
        assert_eq!(denial_message(&call(&plugin).await.unwrap().verdict), expected);
    }
}

const SEND_IMPORT: &str = r#"(import "admittance:plugin/http@0.1.1" "send"
    (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;

/// Returns a guest that sends a `GET` to this URL, denies with the response's status, and allows after an error.
fn sending_guest(url: &str) -> Guest {
    let code = format!(
        "(call $send (i32.const {TEXT_ADDRESS}) (i32.const 3) (i32.const {}) (i32.const {})
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const {SCRATCH_ADDRESS}))
         (if (i32.eqz (i32.load8_u (i32.const {SCRATCH_ADDRESS}))) (then
            (i32.store8 (i32.const {}) (i32.const 3))
            (i32.store16 (i32.const {}) (i32.add (i32.const 300) (i32.load16_u (i32.const {}))))))",
        TEXT_ADDRESS + 3,
        url.len(),
        RESPONSE_ADDRESS + 4,
        RESPONSE_ADDRESS + 8,
        SCRATCH_ADDRESS + 8
    );
    Guest::running(&code)
        .with_items(SEND_IMPORT)
        .with_data(TEXT_ADDRESS, format!("GET{url}").as_bytes())
}

fn grant_for_origin(origin: &str) -> HttpGrant {
    origin.parse::<HttpOrigin>().unwrap().into()
}

#[tokio::test]
async fn a_plugin_sends_requests_only_to_granted_origins() {
    let echo = Arc::new(Echo::default());
    let http: Arc<dyn HttpSender> = echo.clone();
    let sandbox = sandbox_with(|config| config.http = Some(http));
    let narrow = HttpGrant {
        paths: vec!["/v1/".parse().unwrap()],
        ..grant_for_origin("https://c.example")
    };
    let posts = HttpGrant {
        methods: ["POST".to_owned()].into(),
        ..grant_for_origin("https://d.example")
    };
    let grants = Grants {
        http: vec![
            grant_for_origin("https://a.example"),
            grant_for_origin("http://127.0.0.1:81"),
            narrow,
            posts,
        ],
        ..Grants::default()
    };
    for (url, expected) in [
        ("https://a.example/x?y", Ok("504")),
        ("https://A.example:443/", Ok("504")),
        ("http://a.example/", Ok("allow")),
        ("http://127.0.0.1:81/x", Ok("504")),
        ("https://c.example/v1/x", Ok("504")),
        (
            "https://c.example/v2/x",
            Err("add the path to `paths` of `https://c.example` in `allow.http`"),
        ),
        (
            "https://d.example/",
            Err("add `GET` to `methods` of `https://d.example` in `allow.http`"),
        ),
        ("https://a.example/private", Err("that is a private address")),
        ("https://u:p@a.example/", Ok("allow")),
        ("https://a.example/#f", Ok("allow")),
        ("nothing", Ok("allow")),
        ("https://b.example/", Err("add `https://b.example` to `allow.http`")),
        (
            "https://a.example:8443/",
            Err("add `https://a.example:8443` to `allow.http`"),
        ),
        (
            "https://a.example.evil/",
            Err("add `https://a.example.evil` to `allow.http`"),
        ),
    ] {
        let plugin = load_with(&sandbox, &sending_guest(url), "{}", &config_with_grants(grants.clone()))
            .await
            .unwrap();
        match (call(&plugin).await, expected) {
            (Ok(response), Ok(expected)) => {
                let outcome = match response.verdict {
                    Verdict::Deny(denial) => denial.code().to_string(),
                    _ => "allow".to_owned(),
                };
                assert_eq!(outcome, expected, "{url}");
            }
            (Err(failure), Err(message)) => {
                assert_eq!(failure.kind, FailureKind::CapabilityDenied, "{url}");
                assert!(failure.message.contains(message), "{url}: {failure}");
            }
            (outcome, _) => panic!("{url}: {outcome:?}"),
        }
    }
    assert_eq!(
        *echo.requests.lock().unwrap(),
        [
            "GET https://a.example/x?y",
            "GET https://a.example/",
            "GET http://127.0.0.1:81/x",
            "GET https://c.example/v1/x"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_function_times_out_before_the_deadline_of_the_call() {
    let sandbox = sandbox_with(|config| config.http = Some(Arc::new(SilentControlPlane)));
    let grants = Grants {
        http: vec![grant_for_origin("https://a.example")],
        ..Grants::default()
    };
    let plugin = load_with(
        &sandbox,
        &sending_guest("https://a.example/"),
        "{}",
        &config_with_grants(grants),
    )
    .await
    .unwrap();
    let deadline = Deadline::after(std::time::Duration::from_secs(1));
    plugin.admit(&Arc::new(request()), deadline).await.unwrap();
    let remaining_millis = deadline.remaining().as_millis();
    assert!((1..=100).contains(&remaining_millis), "{remaining_millis}");
    assert_eq!(sandbox.free_slots(), 1);
}

#[tokio::test]
async fn grants_do_not_apply_while_a_plugin_is_configured() {
    let echo = Arc::new(Echo::default());
    let (reader, http): (Arc<dyn ClusterReader>, Arc<dyn HttpSender>) = (echo.clone(), echo.clone());
    let sandbox = sandbox_with(|config| {
        config.cluster = Some(reader);
        config.http = Some(http);
    });
    let grants = Grants {
        cluster: [ClusterKind::new("v1", "Node")].into(),
        http: vec![grant_for_origin("https://a.example")],
        ..Grants::default()
    };
    // The guest checks that the call returned `err(unavailable(...))`, by the tags of the result and of the error. It
    // traps if the call returned anything else.
    let unavailable = |call: String, error: u32| {
        format!(
            "{call} (if (i32.or (i32.ne (i32.load8_u (i32.const {SCRATCH_ADDRESS})) (i32.const 1))
                 (i32.load8_u (i32.const {}))) (then unreachable))",
            SCRATCH_ADDRESS + error
        )
    };
    let (get, text) = (unavailable(get_call(), 4), "v1Nodea");
    let reads = Guest::default()
        .with_items(GET_IMPORT)
        .with_data(TEXT_ADDRESS, text.as_bytes())
        .with_configure(&get);
    let url = "https://a.example/";
    let send = format!(
        "(call $send (i32.const {TEXT_ADDRESS}) (i32.const 3) (i32.const {}) (i32.const {})
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const {SCRATCH_ADDRESS}))",
        TEXT_ADDRESS + 3,
        url.len()
    );
    let sends = Guest::default()
        .with_items(SEND_IMPORT)
        .with_data(TEXT_ADDRESS, format!("GET{url}").as_bytes())
        .with_configure(&unavailable(send, 8));
    for guest in [reads, sends] {
        load_with(&sandbox, &guest, "{}", &config_with_grants(grants.clone()))
            .await
            .unwrap();
    }
    assert!(echo.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn opening_a_file_or_a_socket_fails() {
    let network = Guest::running("(drop (call $network))")
        .with_world("import wasi:sockets/instance-network@0.2.3;")
        .with_items(
            r#"(import "wasi:sockets/instance-network@0.2.3" "instance-network" (func $network (result i32)))"#,
        );
    // This host does not provide `wasi:filesystem/types`. The interface is a special case, because it uses the streams
    // of another interface, which this host does provide.
    let files = Guest::running("(drop (call $append (i32.const 0)))")
        .with_world("import wasi:filesystem/types@0.2.3;")
        .with_items(
            r#"(import "wasi:filesystem/types@0.2.3" "[method]descriptor.append-via-stream"
                (func $append (param i32) (result i32)))"#,
        );
    let failure = load_and_call(&network).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::CapabilityDenied);
    assert!(
        failure
            .message
            .contains("`wasi:sockets/instance-network@0.2.3#instance-network`"),
        "{failure}"
    );
    // The call traps, because the guest uses a descriptor that it did not get from the host.
    assert_eq!(load_and_call(&files).await.unwrap_err().kind, FailureKind::Trap);
}

#[tokio::test]
async fn a_plugin_finds_no_open_directories() {
    let guest = Guest::running(&format!(
        "(call $directories (i32.const {SCRATCH_ADDRESS}))
         (if (i32.load (i32.const {})) (then unreachable))",
        SCRATCH_ADDRESS + 4
    ))
    .with_world("import wasi:filesystem/preopens@0.2.3;")
    .with_items(r#"(import "wasi:filesystem/preopens@0.2.3" "get-directories" (func $directories (param i32)))"#);
    load_and_call(&guest).await.unwrap();
}

#[tokio::test]
async fn a_plugin_sees_only_granted_environment_variables() {
    // If the guest gets any environment variables, it denies with the value of the first one as the message. Otherwise
    // it allows.
    let guest = Guest::running(&format!(
        "(call $environment (i32.const {SCRATCH_ADDRESS}))
         (if (i32.load (i32.const {})) (then
            (i32.store8 (i32.const {}) (i32.const 3))
            (i32.store (i32.const {}) (i32.load offset=8 (i32.load (i32.const {SCRATCH_ADDRESS}))))
            (i32.store (i32.const {}) (i32.load offset=12 (i32.load (i32.const {SCRATCH_ADDRESS}))))))",
        SCRATCH_ADDRESS + 4,
        RESPONSE_ADDRESS + 4,
        RESPONSE_ADDRESS + 20,
        RESPONSE_ADDRESS + 24
    ))
    .with_world("import wasi:cli/environment@0.2.3;")
    .with_items(r#"(import "wasi:cli/environment@0.2.3" "get-environment" (func $environment (param i32)))"#);
    assert!(matches!(load_and_call(&guest).await.unwrap().verdict, Verdict::Allow));
    let environment = [("REGION".to_owned(), "north".to_owned())].into();
    let config = config_with_grants(Grants {
        environment,
        ..Grants::default()
    });
    let plugin = load_with(sandbox(), &guest, "{}", &config).await.unwrap();
    assert_eq!(denial_message(&call(&plugin).await.unwrap().verdict), "north");
}

#[tokio::test]
async fn a_plugin_that_exits_fails_the_call() {
    let guest = Guest::running("(call $exit (i32.const 1))")
        .with_world("import wasi:cli/exit@0.2.3;")
        .with_items(r#"(import "wasi:cli/exit@0.2.3" "exit" (func $exit (param i32)))"#);
    let failure = load_and_call(&guest).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Trap);
    assert!(failure.message.contains("exit code 1"), "{failure}");
}

const STDERR_IMPORTS: &str = r#"
    (import "wasi:cli/stderr@0.2.3" "get-stderr" (func $stderr (result i32)))
    (import "wasi:io/streams@0.2.3" "[method]output-stream.blocking-write-and-flush"
        (func $write (param i32 i32 i32 i32)))"#;

fn stderr_guest_and_code(text: &str) -> (Guest, String) {
    let code = format!(
        "(call $write (call $stderr) (i32.const {TEXT_ADDRESS}) (i32.const {}) (i32.const {SCRATCH_ADDRESS}))",
        text.len()
    );
    let guest = Guest::default()
        .with_world("import wasi:cli/stderr@0.2.3; import wasi:io/streams@0.2.3;")
        .with_items(STDERR_IMPORTS)
        .with_data(TEXT_ADDRESS, text.as_bytes());
    (guest, code)
}

#[tokio::test]
async fn a_failure_includes_the_last_output_of_the_plugin() {
    let panic = "thread main panicked at src/lib.rs:3:5:\nno image\nnote: run with `RUST_BACKTRACE=1`\n";
    let (guest, code) = stderr_guest_and_code(panic);
    let guest = Guest {
        admit: format!("{code} unreachable"),
        ..guest
    };
    let failure = load_and_call(&guest).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Trap);
    assert_eq!(
        failure.message,
        "the plugin panicked or aborted: thread main panicked at src/lib.rs:3:5:\nno image"
    );
}

#[tokio::test]
async fn a_plugin_with_an_open_stream_is_not_snapshotted() {
    let (guest, code) = stderr_guest_and_code("hello\n");
    let plugin = load_with(sandbox(), &guest.with_configure(&code), "{}", &config())
        .await
        .unwrap();
    let ConfigurationTime::PerCall { reason } = plugin.configuration_time() else {
        panic!("{:?}", plugin.configuration_time())
    };
    assert!(reason.contains("host resource"), "{reason}");
    call(&plugin).await.unwrap();
}

#[tokio::test]
async fn log_lines_contain_the_plugin_and_the_request() {
    let guest = Guest::running(&format!(
        "(call $log (i32.const 2) (i32.const {TEXT_ADDRESS}) (i32.const 5) (i32.const {}) (i32.const 9))",
        TEXT_ADDRESS + 5
    ))
    .with_items(r#"(import "wasi:logging/logging@0.1.0-draft" "log" (func $log (param i32 i32 i32 i32 i32)))"#)
    .with_data(TEXT_ADDRESS, b"rulesno owners");
    let plugin = load(&guest).await;
    let request = Arc::new(request());
    plugin
        .admit(&request, Deadline::after(std::time::Duration::from_secs(60)))
        .await
        .unwrap();
    let expected = format!(
        r#"INFO admittance::plugin: no owners plugin="guest" uid="{}" context="rules""#,
        request.uid
    );
    let lines = log_lines();
    assert!(lines.iter().any(|line| line.trim() == expected), "{lines:#?}");
}

#[tokio::test]
async fn the_function_configure_has_no_grants_even_within_a_call() {
    // The guest counts the environment variables that it gets, both in `configure` and in `admit`.
    let count = |at: u32| {
        format!(
            "(call $environment (i32.const {SCRATCH_ADDRESS})) (i32.store (i32.const {at}) (i32.load (i32.const {})))",
            SCRATCH_ADDRESS + 4
        )
    };
    let (first, second) = (SCRATCH_ADDRESS + 16, SCRATCH_ADDRESS + 20);
    let guest = Guest::running(&format!(
        "{}
         (if (i32.load (i32.const {first})) (then unreachable))
         (if (i32.ne (i32.load (i32.const {second})) (i32.const 1)) (then unreachable))",
        count(second)
    ))
    .with_configure(&count(first))
    .with_world("import wasi:cli/environment@0.2.3;")
    .with_items(
        r#"(import "wasi:cli/environment@0.2.3" "get-environment" (func $environment (param i32)))
           (table 1 funcref) (func $unused (table.set (i32.const 0) (ref.null func)))"#,
    );
    let environment = [("REGION".to_owned(), "north".to_owned())].into();
    let config = config_with_grants(Grants {
        environment,
        ..Grants::default()
    });
    let plugin = load_with(sandbox(), &guest, "{}", &config).await.unwrap();
    assert!(matches!(plugin.configuration_time(), ConfigurationTime::PerCall { .. }));
    call(&plugin).await.unwrap();
}
