//! Checks the README and the pages below `docs` against the program. Their Rust examples are compiled in the SDK and
//! in `admittance`.

mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
};

use admittance::{
    admission::FailureKind,
    definitions::{Mistakes, load_text},
};
use admittance_driver::Config;
use admittance_sdk::testing;
use admittance_tests::Admittance;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::Value;

use self::page::{Block, Page, codes, resolve, words};

/// The info strings that a block may have. A block without one would be treated as Rust.
const INFOS: [&str; 12] = [
    // A definition, or a complete configuration.
    "yaml",
    // A part of either.
    "yaml fragment",
    // One that `check` rejects; the next block is its output.
    "yaml wrong",
    "json",
    "console",
    "toml",
    "ini",
    "text",
    // Compiled and run.
    "rust",
    // Compiled.
    "rust,no_run",
    // Neither.
    "rust,ignore",
    "mermaid",
];

/// The required keys of a configuration, one per line.
const LEAST: &str = r#"dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: ["http://127.0.0.1:8081"] }
"#;

/// A field that does not exist and is not similar to any other.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqq";

fn blocks() -> Vec<Block> {
    Page::all().iter().flat_map(Page::blocks).collect()
}

fn configuration(text: &str, folder: &Path) -> Result<Config, Mistakes> {
    let path = folder.join("admittance.yaml");
    std::fs::write(&path, text).unwrap();
    Config::read(&path)
}

#[test]
fn every_block_says_what_it_is() {
    for block in blocks() {
        assert!(INFOS.contains(&block.info.as_str()), "{block}: `{}`", block.info);
    }
}

#[test]
fn json_and_toml_can_be_read() {
    for block in blocks() {
        match block.info.as_str() {
            "json" => {
                let read: Result<Value, _> = serde_json::from_str(&block.text);
                assert!(read.is_ok(), "{block}: {read:?}");
            }
            "toml" => {
                let read: Result<toml::Table, _> = toml::from_str(&block.text);
                assert!(read.is_ok(), "{block}: {read:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn definitions_and_configurations_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = 0;
    for block in blocks().iter().filter(|block| block.info == "yaml") {
        let name = block.to_string();
        let is_definition = block.text.lines().any(|line| line.starts_with("kind:"));
        let mistakes = if is_definition {
            load_text(&name, &block.text)
                .map(|chains| assert_eq!(chains.len(), 1, "{block}"))
                .err()
        } else {
            configuration(&block.text, folder.path()).err()
        };
        assert!(mistakes.is_none(), "{block}: {}", mistakes.unwrap());
        read += 1;
    }
    assert!(read > 5, "the pages have examples");
}

/// The commands for certificates on the page for operators create the files that its fragments name.
#[tokio::test]
async fn fragments_fit_where_they_belong() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Page::read("docs/operators.md")
        .blocks()
        .into_iter()
        .flat_map(|block| commands(&block))
        .find(|command| command.starts_with(&["admittance".to_owned(), "certs".to_owned()]))
        .unwrap();
    let mut program = Admittance::command().unwrap();
    let status = program
        .args(&certificates[1..])
        .current_dir(folder.path())
        .output()
        .await
        .unwrap();
    assert!(status.status.success(), "{certificates:?}: {status:?}");
    for block in blocks().iter().filter(|block| block.info == "yaml fragment") {
        let keys: Vec<&str> = block
            .text
            .lines()
            .filter(|line| !line.starts_with([' ', '#']))
            .filter_map(|line| line.split_once(':'))
            .map(|(key, _)| key)
            .collect();
        let mistakes = if keys.iter().all(|key| key.ends_with("Selector")) {
            let stage: String = block.text.lines().map(|line| format!("      {line}\n")).collect();
            load_text(&block.to_string(), &chain_with(&stage)).err()
        } else {
            // A gateway has no upstream.
            let is_gateway = block.text.contains("  gateway:");
            let rest = LEAST
                .lines()
                .filter(|line| !keys.iter().any(|key| line.starts_with(key)))
                .filter(|line| !(is_gateway && line.starts_with("upstream:")));
            let whole: String = rest
                .chain(block.text.lines())
                .map(|line| format!("{line}\n"))
                .collect();
            configuration(&whole, folder.path()).err()
        };
        assert!(mistakes.is_none(), "{block}: {}", mistakes.unwrap());
    }
}

/// A chain whose only stage has these fields in addition to its name and plugin.
fn chain_with(stage: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: example }}
spec:
  rules: [ {{ operations: [CREATE], kinds: [application] }} ]
  stages:
    - name: example
      plugin: {{ source: file:example.wasm }}
{stage}"
    )
}

#[tokio::test]
async fn check_says_of_wrong_examples_what_the_pages_say() {
    let folder = tempfile::tempdir().unwrap();
    let all = blocks();
    let mut checked = 0;
    for (block, next) in all.iter().zip(all.iter().skip(1)) {
        if block.info != "yaml wrong" {
            continue;
        }
        let file = next.text.split_once(':').map(|(file, _)| file).unwrap();
        std::fs::write(folder.path().join(file), &block.text).unwrap();
        let mut program = Admittance::command().unwrap();
        program.args(["check", file]).current_dir(folder.path());
        let output = program.output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), next.text, "{next}");
        assert_eq!(output.status.code(), Some(1), "{next}");
        checked += 1;
    }
    assert!(checked > 0, "a page shows what `check` says");
}

/// The shell commands of a block, split into words.
fn commands(block: &Block) -> Vec<Vec<String>> {
    let lines = block.text.lines().filter(|_| block.info == "console");
    lines
        .filter_map(|line| line.strip_prefix("$ "))
        .map(words)
        .collect()
}

/// The words of a help text that are flags.
fn flags(help: &str) -> BTreeSet<String> {
    help.split(|c: char| c.is_whitespace() || matches!(c, ',' | '\'' | '`' | '[' | ']'))
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .map(str::to_owned)
        .collect()
}

async fn helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let all = Admittance::run(["--help"]).await.unwrap().stdout;
    let (_, commands) = all.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    // A continuation line is indented further.
    let names = commands.lines().filter(|line| !line.starts_with("    "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let mut names: Vec<String> = names
        .filter(|name| name != "help" && name != "kubernetes")
        .collect();
    names.push("kubernetes manifests".to_owned());
    assert!(names.len() > 15, "{names:?}");
    for subcommand in names {
        let arguments = subcommand.split(' ').chain(["--help"]);
        let help = Admittance::run(arguments).await.unwrap();
        assert_eq!(help.code, Some(0), "{subcommand}: {}", help.stderr);
        helps.insert(subcommand, help.stdout);
    }
    helps
}

#[tokio::test]
async fn commands_and_flags_are_those_of_the_program() {
    let helps = helps().await;
    let all: BTreeSet<String> = helps.values().flat_map(|help| flags(help)).collect();
    let check = |place: &str, command: &[String]| {
        let Some((program, arguments)) = command
            .split_first()
            .filter(|(program, _)| *program == "admittance")
        else {
            return;
        };
        let Some((subcommand, mut arguments)) = arguments.split_first() else {
            return;
        };
        let mut subcommand = subcommand.clone();
        if subcommand == "kubernetes"
            && let Some((second, rest)) = arguments.split_first()
        {
            subcommand = format!("{subcommand} {second}");
            arguments = rest;
        }
        if subcommand == "help" || subcommand.starts_with('-') {
            return;
        }
        let help = helps.get(subcommand.as_str());
        assert!(help.is_some(), "{place}: `{program} {subcommand}` does not exist");
        for flag in arguments.iter().filter(|word| word.starts_with('-')) {
            assert!(
                flags(help.unwrap()).contains(flag),
                "{place}: `{subcommand}` has no {flag}"
            );
        }
    };
    for block in blocks() {
        for command in commands(&block) {
            check(&block.to_string(), &command);
        }
    }
    for page in Page::all() {
        for (line, code) in page.codes() {
            let place = format!("{}:{line}", page.path.display());
            check(&place, &words(code));
            // Only flags by themselves: commands of other programs have their own. `---` separates documents.
            let is_flag = |word: &&str| word.starts_with("--") && *word != "---";
            if let Some(flag) = code.split(' ').next().filter(is_flag) {
                assert!(all.contains(flag), "{place}: the program has no {flag}");
            }
        }
    }
}

#[tokio::test]
async fn flags_and_variables_of_serve_are_listed() {
    let helps = helps().await;
    let variables = |help: &str| -> BTreeSet<String> {
        let rest = help.split("[env: ").skip(1);
        rest.filter_map(|rest| rest.split_once('='))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let page = Page::read("docs/configuration.md");
    let listed: BTreeSet<String> = page
        .rows("Flags and environment variables")
        .iter()
        .flat_map(|row| [codes(row[0]), codes(row[1])].concat())
        .filter(|code| code.starts_with("--") || code.starts_with("ADMITTANCE_"))
        .map(str::to_owned)
        .collect();
    let serve = &helps["serve"];
    let mut real = flags(serve);
    real.retain(|flag| flag.starts_with("--") && !["--help", "--version"].contains(&flag.as_str()));
    real.extend(variables(serve));
    assert_eq!(listed, real);
    let mut all: BTreeSet<String> = helps.values().flat_map(|help| variables(help)).collect();
    // There is no flag for it, because other users could see a token in the arguments.
    all.insert("ADMITTANCE_TOKEN".to_owned());
    for page in Page::all() {
        let names = page.text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        for name in names.filter(|word| word.starts_with("ADMITTANCE_")) {
            assert!(all.contains(name), "{}: there is no {name}", page.path.display());
        }
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in Page::all() {
        for (line, target) in page.links() {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => resolve(Path::new(""), page.path.to_str().unwrap()),
                path => resolve(&page.path, path),
            };
            let leads = if anchor.is_empty() {
                path.exists()
            } else {
                std::fs::read_to_string(&path).is_ok_and(|text| {
                    Page { path, text }
                        .anchors()
                        .iter()
                        .any(|heading| heading == anchor)
                })
            };
            if !leads {
                broken.push(format!("{}:{line}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}

/// Records the descriptions of metrics, but no values.
#[derive(Clone, Default)]
struct Described(Arc<Mutex<BTreeMap<String, &'static str>>>);

impl Described {
    fn note(&self, name: KeyName, kind: &'static str) {
        self.0.lock().unwrap().insert(name.as_str().to_owned(), kind);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "counter");
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "gauge");
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.note(name, "histogram");
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn metrics_are_listed() {
    let described = Described::default();
    metrics::with_local_recorder(&described, || {
        admittance::describe_metrics();
        admittance_driver::describe_metrics();
        admittance_cluster::describe_metrics();
    });
    let mut listed: BTreeMap<String, &str> = BTreeMap::new();
    let pages = ["docs/operators.md", "docs/gateway.md"].map(Page::read);
    for page in &pages {
        for row in page.rows("Metrics") {
            listed.extend(codes(row[0]).first().map(|name| ((*name).to_owned(), row[1])));
        }
    }
    assert_eq!(listed, *described.0.lock().unwrap());
}

#[test]
fn failures_are_listed() {
    let page = Page::read("docs/operators.md");
    assert_eq!(
        page.first_column("Failures"),
        FailureKind::ALL
            .iter()
            .map(|kind| kind.as_str())
            .collect::<Vec<_>>()
    );
}

#[test]
fn settings_of_the_stock_plugins_are_listed() {
    let page = Page::read("docs/operators.md");
    for description in [
        testing::describe::<sidecar_injector::SidecarInjector>(),
        testing::describe::<image_policy::ImagePolicy>(),
        testing::describe::<edge_health::EdgeHealth>(),
    ] {
        let schema: Value = serde_json::from_str(&description.settings_schema.unwrap()).unwrap();
        let settings: BTreeSet<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let listed: BTreeSet<&str> = page.first_column(&description.name).into_iter().collect();
        assert_eq!(listed, settings, "{}", description.name);
    }
}

/// The known fields next to the unknown one.
fn known(mistakes: &Mistakes) -> Vec<String> {
    let unknown = mistakes
        .iter()
        .find(|mistake| mistake.path.ends_with(UNKNOWN))
        .unwrap();
    let fields = unknown.fix.strip_prefix("known here: ").unwrap();
    fields.split(", ").map(str::to_owned).collect()
}

/// `text` with the unknown field in place of `?`, closed again.
fn with_unknown(text: &str) -> String {
    text.replace('?', &format!("{UNKNOWN}: 1"))
}

#[test]
fn keys_of_the_configuration_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let known = |text: &str| known(&configuration(&with_unknown(text), folder.path()).unwrap_err());
    let mut keys = BTreeSet::new();
    let sections = [
        ("", "{ ? }"),
        ("listen.", "listen: { ? }"),
        ("listen.tls.", "listen: { tls: { ? } }"),
        ("admin.", "admin: { ? }"),
        ("admin.tls.", "admin: { tls: { ? } }"),
        ("admin.tokens[].", "admin: { tokens: [ { ? } ] }"),
        ("admin.clients[].", "admin: { clients: [ { ? } ] }"),
        ("upstream.", "upstream: { ? }"),
        ("upstream.tls.", "upstream: { tls: { ? } }"),
        ("upstream.health.", "upstream: { health: { ? } }"),
        ("upstream.discover.", "upstream: { discover: { ? } }"),
        ("zookeeper.", "zookeeper: { ? }"),
        ("zookeeper.cluster.", "zookeeper: { cluster: { ? } }"),
        (
            "zookeeper.cluster.digest.",
            "zookeeper: { cluster: { digest: { ? } } }",
        ),
        ("registration.", "registration: { ? }"),
        ("registration.external.", "registration: { external: { ? } }"),
        ("limits.", "limits: { ? }"),
        ("store.", "store: { ? }"),
        ("history.", "history: { ? }"),
        ("modules.", "modules: { ? }"),
        ("signatures[].", "signatures: [ { ? } ]"),
        ("signatures[].keyless.", "signatures: [ { keyless: { ? } } ]"),
        (
            "signatures[].keyless.trustRoot.",
            "signatures: [ { keyless: { trustRoot: { ? } } } ]",
        ),
        ("sandbox.", "sandbox: { ? }"),
        ("cluster.", "cluster: { ? }"),
        ("webhooks.", "webhooks: { ? }"),
        ("log.", "log: { ? }"),
    ];
    for (prefix, text) in sections {
        keys.extend(known(text).iter().map(|key| format!("{prefix}{key}")));
    }
    for (section, _) in sections {
        keys.remove(section.trim_end_matches('.').trim_end_matches("[]"));
    }
    // It may also be a file.
    keys.insert("signatures[].keyless.trustRoot".to_owned());
    // Its keys are arbitrary.
    keys.remove("namespaces");
    keys.insert("namespaces.<name>".to_owned());
    let page = Page::read("docs/configuration.md");
    let listed: BTreeSet<String> = page
        .first_column("Every key")
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, keys);

    assert_eq!(known("dialect: { ? }"), ["bcs", "gateway", "kubernetes", "rest"]);
    let mut keys: BTreeSet<String> = known("dialect: { bcs: { ? } }").into_iter().collect();
    keys.remove("console");
    let console = known("dialect: { bcs: { console: { ? } } }");
    keys.extend(console.iter().map(|key| format!("console.{key}")));
    let listed = page
        .first_column("The dialect bcs")
        .into_iter()
        .map(str::to_owned);
    assert_eq!(listed.collect::<BTreeSet<_>>(), keys);
    let gateway = Page::read("docs/gateway.md");
    let listed = gateway.first_column("A complete configuration");
    for key in known("dialect: { gateway: { ? } }") {
        let is_listed = |listed: &&str| **listed == key || listed.starts_with(&format!("{key}."));
        assert!(
            listed.iter().any(is_listed),
            "the key {key} of a gateway is listed"
        );
    }
    let listed: BTreeSet<&str> = gateway.first_column("Token server").into_iter().collect();
    for key in known("dialect: { gateway: { tokens: { endpoint: { ? } } } }") {
        let is_listed = |listed: &&str| **listed == key || listed.starts_with(&format!("{key}."));
        assert!(
            listed.iter().any(is_listed),
            "the key {key} of an endpoint is listed"
        );
    }
    assert_eq!(
        known("dialect: { rest: { ? } }"),
        ["routes", "spellings", "unmatched"]
    );
    let listed: BTreeSet<&str> = page.first_column("The dialect rest").into_iter().collect();
    for field in known("dialect: { rest: { routes: [ { ? } ] } }") {
        assert!(
            listed.contains(field.as_str()),
            "the field {field} of a route is listed"
        );
    }
    for source in known("dialect: { rest: { routes: [ { name: { ? } } ] } }") {
        let row = format!("{{ {source}: ");
        assert!(
            listed.iter().any(|code| code.starts_with(&row)),
            "the source {source} is listed"
        );
    }
}

#[test]
fn fields_of_definitions_are_listed() {
    const NATIVE: &str = "{ apiVersion: admittance.dev/v1alpha1, kind: AdmissionChain, ";
    const BCS: &str = "{ apiVersion: v4, kind: admissionwebhook, ";
    let page = Page::read("docs/definitions.md");
    // Heading; prefix of the fields; the document around them; fields that are listed by their own fields or
    // rejected.
    for (heading, parts) in [
        (
            "AdmissionChain",
            &[
                ("metadata.", NATIVE, "metadata: { ? } }", &[][..]),
                ("spec.", NATIVE, "spec: { ? } }", &[]),
                ("stages[].", NATIVE, "spec: { stages: [ { ? } ] } }", &[]),
            ][..],
        ),
        ("Rules", &[("", NATIVE, "spec: { rules: [ { ? } ] } }", &[])]),
        (
            "Plugin",
            &[
                (
                    "",
                    NATIVE,
                    "spec: { stages: [ { plugin: { ? } } ] } }",
                    &["allow"],
                ),
                (
                    "allow.",
                    NATIVE,
                    "spec: { stages: [ { plugin: { allow: { ? } } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "Candidate",
            &[(
                "",
                NATIVE,
                "spec: { stages: [ { plugin: {}, candidate: { ? } } ] } }",
                &[],
            )],
        ),
        (
            "Webhook",
            &[
                (
                    "",
                    NATIVE,
                    "spec: { stages: [ { webhook: { ? } } ] } }",
                    &["service"],
                ),
                (
                    "service.",
                    NATIVE,
                    "spec: { stages: [ { webhook: { service: { ? } } } ] } }",
                    &[],
                ),
            ],
        ),
        (
            "BCS admissionwebhook",
            &[
                ("", BCS, "? }", &["metadata", "resourcesRef"]),
                ("resourcesRef.", BCS, "resourcesRef: { ? } }", &[]),
                (
                    "admissionWebhooks[].",
                    BCS,
                    "admissionWebhooks: [ { ? } ] }",
                    &["clientConfig"],
                ),
                (
                    "admissionWebhooks[].clientConfig.",
                    BCS,
                    "admissionWebhooks: [ { clientConfig: { ? } } ] }",
                    &[],
                ),
            ],
        ),
    ] {
        let mut fields = BTreeSet::new();
        for (prefix, start, rest, not_listed) in parts {
            let mistakes = load_text("a.yaml", &with_unknown(&format!("{start}{rest}"))).unwrap_err();
            let known = known(&mistakes)
                .into_iter()
                .filter(|field| !not_listed.contains(&field.as_str()));
            fields.extend(known.map(|field| format!("{prefix}{field}")));
        }
        let mut listed: BTreeSet<String> = page
            .first_column(heading)
            .into_iter()
            .map(str::to_owned)
            .collect();
        // Metadata that BCS and Kubernetes add to an object is accepted and ignored.
        if heading.starts_with("BCS") {
            listed.remove("metadata.name");
            listed.remove("metadata.namespace");
        }
        // The format of a document is determined before its fields are read.
        listed.retain(|field| fields.contains(field) || !["apiVersion", "kind"].contains(&field.as_str()));
        fields.retain(|field| listed.contains(field) || !["apiVersion", "kind"].contains(&field.as_str()));
        assert_eq!(listed, fields, "{heading}");
    }
}
