//! Checks the examples in code blocks on the pages.

use admittance::definitions::{ChainDefinition, load_text};
use admittance_tests::{Admittance, Artifacts};
use serde_json::Value;

use super::{blocks, commands::commands, page::Page, read_configuration, test_plugin};
use crate::scene::store;

/// The info strings that code blocks may have. Without one, rustdoc would compile a block as Rust.
const INFO_STRINGS: [&str; 16] = [
    "yaml",
    "yaml fragment",
    // A code block with test cases, all of which must pass. If a test case contains `target: http`, it is for the
    // plugin guest-reaches-out, and otherwise for the stock plugin image-policy.
    "yaml cases",
    // Blocks with a definition that `check` rejects. The block after it on the page is the output of `check`.
    "yaml wrong",
    "json",
    "console",
    "toml",
    "ini",
    "text",
    "rust",
    "rust,no_run",
    "rust,ignore",
    // Code blocks in JavaScript and Python are not run here, but by the tests of the SDK packages for these languages.
    "javascript",
    "python",
    // Blocks in C are compiled and run by the test of projects in C.
    "c",
    "mermaid",
];

/// The keys that every configuration must have, each on a line of its own.
const MINIMAL_CONFIG: &str = r#"dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: ["http://127.0.0.1:8081"] }
"#;

/// (part of a warning about an example on the pages, reason why the example is right nevertheless)
const EXPECTED_WARNINGS: [(&str, &str); 3] = [
    ("undefined field 'sizes'", "the page shows this warning"),
    ("has no field \"securityContxt\"", "the page shows this warning"),
    (
        "chain trusted-registries, trusted-registries: the rules match pods and not pods/ephemeralcontainers",
        "the page about Kyverno says why its policy is for Pods alone",
    ),
];

#[test]
fn every_code_block_has_a_known_info_string() {
    for block in blocks() {
        assert!(INFO_STRINGS.contains(&block.info.as_str()), "{block}: `{}`", block.info);
    }
}

#[test]
fn json_and_toml_blocks_can_be_parsed() {
    for block in blocks() {
        match block.info.as_str() {
            "json" => {
                let result: Result<Value, _> = serde_json::from_str(&block.text);
                assert!(result.is_ok(), "{block}: {result:?}");
            }
            "toml" => {
                let result: Result<toml::Table, _> = toml::from_str(&block.text);
                assert!(result.is_ok(), "{block}: {result:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn definitions_and_configurations_on_the_pages_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let (mut example_count, mut warnings) = (0, Vec::new());
    for block in blocks().iter().filter(|block| block.info == "yaml") {
        let name = block.to_string();
        let is_definition = block.text.lines().any(|line| line.starts_with("kind:"));
        let mistakes = if is_definition {
            load_text(&name, &block.text)
                // A `SyncSet` or an `ExpansionTemplate` defines no chain. Every other example must define at least one.
                .map(|chains| {
                    let has_none = ["kind: SyncSet", "kind: ExpansionTemplate"]
                        .iter()
                        .any(|kind| block.text.contains(kind));
                    assert_eq!(chains.is_empty(), has_none, "{block}");
                    let chain_warnings = chains.iter().flat_map(ChainDefinition::warnings);
                    warnings.extend(chain_warnings.map(|warning| warning.to_string()));
                })
                .err()
        } else {
            read_configuration(&block.text, folder.path()).err()
        };
        assert!(mistakes.is_none(), "{block}: {}", mistakes.unwrap());
        example_count += 1;
    }
    assert!(example_count > 5, "the pages have examples");
    for (part, why) in EXPECTED_WARNINGS {
        let before = warnings.len();
        warnings.retain(|warning| !warning.contains(part));
        assert!(warnings.len() < before, "{part} ({why}) is not warned of");
    }
    assert_eq!(warnings, [""; 0], "readers copy what the pages show");
}

/// Some YAML fragments on the pages refer to files with certificates. A command on the page about TLS creates these
/// files, so the test runs the command first.
#[tokio::test]
async fn yaml_fragments_on_the_pages_are_valid_in_complete_files() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Page::read("docs/tls.md")
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
            // A gateway or a webhook server has no upstream server. So a configuration with one of these dialects must
            // not have the key `upstream`.
            let has_no_upstream = ["  gateway:", "  kubernetes:"]
                .iter()
                .any(|dialect| block.text.contains(dialect));
            let rest = MINIMAL_CONFIG
                .lines()
                .filter(|line| !keys.iter().any(|key| line.starts_with(key)))
                .filter(|line| !(has_no_upstream && line.starts_with("upstream:")));
            let config_text: String = rest.chain(block.text.lines()).map(|line| format!("{line}\n")).collect();
            read_configuration(&config_text, folder.path()).err()
        };
        assert!(mistakes.is_none(), "{block}: {}", mistakes.unwrap());
    }
}

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
async fn check_prints_the_mistakes_that_the_pages_show() {
    let folder = tempfile::tempdir().unwrap();
    let all = blocks();
    let mut checked_count = 0;
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
        checked_count += 1;
    }
    assert!(checked_count > 0, "a page shows what `check` says");
}

#[tokio::test]
async fn the_chain_in_the_readme_refuses_the_object_in_the_readme() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Artifacts::find().unwrap().component("image-policy").unwrap();
    let readme = Page::read("README.md");
    let [chain] = readme.yaml().try_into().unwrap();
    let object = readme.blocks().into_iter().find(|block| block.info == "json");
    for name in ["chains", "plugins"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::fs::copy(plugin, folder.path().join("plugins/image_policy.wasm")).unwrap();
    std::fs::write(folder.path().join("chains/applications.yaml"), chain).unwrap();
    std::fs::write(folder.path().join("application.json"), object.unwrap().text).unwrap();
    let mut program = Admittance::command().unwrap();
    program
        .args(["run", "chains/applications.yaml", "application.json", "--store"])
        .arg(store())
        .current_dir(folder.path());
    let output = program.output().await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("nginx:latest"), "{printed}");
}

#[tokio::test]
async fn test_cases_in_the_documentation_pass() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::find().unwrap();
    let mut tested = 0;
    for block in blocks().iter().filter(|block| block.info == "yaml cases") {
        let plugin = if block.text.contains("target: http") {
            "guest-reaches-out"
        } else {
            "image-policy"
        };
        let plugin = artifacts.component(plugin).unwrap();
        let file = folder.path().join("cases.yaml");
        std::fs::write(&file, &block.text).unwrap();
        let run = test_plugin(&plugin, &file).await;
        assert_eq!(run.code, Some(0), "{block}: {}{}", run.stdout, run.stderr);
        tested += 1;
    }
    assert!(tested > 1, "the pages have cases");
}
