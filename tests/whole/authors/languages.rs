//! Plugins in JavaScript, Python and C, built from the packages that would be published, and new projects.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use admittance_tests::{FinishedProgram, repository};
use tempfile::TempDir;
use tokio::process::Command;

use super::{admittance_command, run_admittance, run_to_end};

/// Copies a package's directory with its symbolic links, and returns a command that runs in the copy.
fn command_in_copy(folder: &Path, package: &str, program: &str, arguments: &[&str]) -> Command {
    let copy = folder.join("copy/sdk");
    fs::create_dir_all(&copy).unwrap();
    for (from, to) in [(format!("sdk/{package}"), "sdk"), ("wit".to_owned(), ".")] {
        let mut copy = std::process::Command::new("cp");
        copy.arg("-R")
            .arg(repository().join(from))
            .arg(folder.join("copy").join(to));
        assert!(copy.status().unwrap().success());
    }
    let mut command = Command::new(program);
    command.args(arguments).current_dir(copy.join(package));
    command
}

/// Creates a project in this language and tests it without a network. `pack` writes the SDK's archive as it would be
/// published, and `unpack` extracts it into `vendor`.
async fn new_project_in(
    lang: &str,
    environment: &[(&str, &Path)],
    pack: (&str, &[&str]),
    unpack: (&str, &[&str]),
) -> (TempDir, FinishedProgram) {
    let folder = tempfile::tempdir().unwrap();
    let new = run_admittance(folder.path(), &["new", "require-label", "--lang", lang]).await;
    assert_eq!(new.code, Some(0), "{}", new.stderr);
    let directory = folder.path().join("require-label");
    fs::remove_dir_all(directory.join("vendor")).unwrap();
    let vendor = directory.join("vendor/admittance");
    fs::create_dir_all(&vendor).unwrap();
    let pack = command_in_copy(folder.path(), lang, pack.0, pack.1);
    let mut unpacked = Command::new(unpack.0);
    unpacked.args(unpack.1).current_dir(&vendor);
    for mut command in [pack, unpacked] {
        command.envs(environment.iter().copied()).env("PIP_NO_INDEX", "1");
        let output = run_to_end(command).await;
        assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    }
    let mut command = admittance_command(&directory, &["test"]);
    command
        .envs(environment.iter().copied())
        .env("npm_config_offline", "true")
        .env("PIP_NO_INDEX", "1");
    let check = run_to_end(command).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stdout.ends_with("\n5 passed, 0 failed\n"), "{}", check.stdout);
    (folder, check)
}

async fn assert_package_passes(folder: &str, mut command: Command) {
    command.current_dir(repository().join("sdk").join(folder));
    let tests = run_to_end(command).await;
    assert_eq!(tests.code, Some(0), "{}{}", tests.stdout, tests.stderr);
}

/// Returns the directory of the toolchain that `cargo task test` has found or downloaded.
fn toolchain(variable: &str, language: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!(
            "skipped: {variable} is not set, since `cargo task test` could not fetch the toolchain of {language}; it \
             says why"
        );
    }
    path
}

async fn assert_templates_pass(lang: &str, environment: &[(&str, &Path)]) {
    let folder = tempfile::tempdir().unwrap();
    for template in ["mutating", "capabilities"] {
        let arguments = ["new", template, "--lang", lang, "--template", template];
        let new = run_admittance(folder.path(), &arguments).await;
        assert_eq!(new.code, Some(0), "{}", new.stderr);
        let mut test = admittance_command(&folder.path().join(template), &["test"]);
        test.envs(environment.iter().copied())
            .env("npm_config_offline", "true")
            .env("PIP_NO_INDEX", "1");
        let test = run_to_end(test).await;
        assert_eq!(test.code, Some(0), "{}{}", test.stdout, test.stderr);
        assert!(test.stdout.ends_with("\n4 passed, 0 failed\n"), "{}", test.stdout);
    }
}

#[tokio::test]
async fn new_projects_in_c_pass_their_tests() {
    if toolchain("ADMITTANCE_TEST_CLANG", "C").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let new = run_admittance(folder.path(), &["new", "require-label", "--lang", "c"]).await;
    assert_eq!(new.code, Some(0), "{}", new.stderr);
    let directory = folder.path().join("require-label");
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stdout.contains("ok    make --silent test"), "{}", check.stdout);
    assert!(check.stdout.ends_with("\n5 passed, 0 failed\n"), "{}", check.stdout);
    let again = run_admittance(&directory, &["test", "--run", "label"]).await;
    assert!(!again.stderr.contains("make plugin.wasm"), "{}", again.stderr);
    let settings = r#"{"label": "", "lable": 1, "values": ["a", ""]}"#;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    fs::write(directory.join("pod.yaml"), pod).unwrap();
    let run = run_admittance(&directory, &["run", "plugin.wasm", "pod.yaml", "--settings", settings]).await;
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    for mistake in [
        "/lable: there is no such setting; write one of `label`, `values`",
        "/label: the label has no name; give one",
        "/values: every value is a text that is not empty",
    ] {
        assert!(run.stderr.contains(mistake), "{}", run.stderr);
    }
    assert_templates_pass("c", &[]).await;

    let page = fs::read_to_string(repository().join("docs/authors-c.md")).unwrap();
    let (_, code) = page.split_once("```c\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    fs::write(directory.join("src/plugin.c"), code).unwrap();
    run_make(&directory).await;
    let arguments = ["run", "plugin.wasm", "pod.yaml", "--settings", r#"{"label": "team"}"#];
    let run = run_admittance(&directory, &arguments).await;
    assert!(
        run.stdout.contains("metadata.labels: `team` is missing; add it"),
        "{}",
        run.stdout
    );

    // Labels may have keys and values with any characters that JSON can express.
    let settings = r#"{"label": "a/b~\u00e9\"", "value": "\ud83d\ude00\n"}"#;
    let template = ["new", "mutating", "--lang", "c", "--template", "mutating"];
    let new = run_admittance(folder.path(), &template).await;
    assert_eq!(new.code, Some(0), "{}", new.stderr);
    run_make(&folder.path().join("mutating")).await;
    let arguments = [
        "run",
        "../mutating/plugin.wasm",
        "pod.yaml",
        "--settings",
        settings,
        "--output",
        "json",
    ];
    let run = run_admittance(&directory, &arguments).await;
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let result: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let text = result.to_string();
    assert!(text.contains(r#"{"a/b~é\"":"😀\n"}"#), "{text}");
}

/// A test case for a plugin that reads the environment variables `REGION` and `ZONE`. The case grants only `REGION`.
const REGION_CASES: &str = r#"
allow: { environment: { REGION: eu } }
cases:
  - name: the variable is read
    request: { object: { apiVersion: v1, kind: Pod, metadata: { name: web, namespace: shop } } }
    expect: { allowed: false, message: "/region is eu, the zone (None|undefined)$/" }
"#;

#[tokio::test]
async fn a_new_project_in_javascript_passes_its_tests() {
    let Some(cache) = toolchain("ADMITTANCE_TEST_NPM_CACHE", "JavaScript") else {
        return;
    };
    let mut tests = Command::new("npm");
    tests.arg("test");
    assert_package_passes("javascript", tests).await;
    let (folder, check) = new_project_in(
        "javascript",
        &[("npm_config_cache", cache.as_path())],
        ("npm", &["pack", "--silent"]),
        (
            "sh",
            &["-c", "tar -xzf ../../../copy/sdk/javascript/*.tgz --strip-components=1"],
        ),
    )
    .await;
    assert!(check.stdout.contains("ok    npm test --if-present"), "{}", check.stdout);
    assert_templates_pass("javascript", &[("npm_config_cache", cache.as_path())]).await;
    let directory = folder.path().join("require-label");
    let again = run_admittance(&directory, &["test", "--run", "label"]).await;
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    assert!(!again.stderr.contains("npm run build"), "{}", again.stderr);
    // The built plugin runs in the sandbox, where it rejects wrong settings.
    let invalid_settings = r#"{"label": "", "lable": 1}"#;
    fs::write(
        directory.join("pod.yaml"),
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
    )
    .unwrap();
    let run = run_admittance(
        &directory,
        &["run", "plugin.wasm", "pod.yaml", "--settings", invalid_settings],
    )
    .await;
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    for message in [
        "/label: empty; write a text",
        "/lable: unknown setting; use one of: label, values",
    ] {
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
    let code = r#"
import { allow, deny, mutate, plugin } from "admittance";
import { get } from "admittance/cluster";
import { send } from "admittance/http";
import * as log from "admittance/log";

export const { describe, configure, admit } = plugin({
  name: "host", version: "0.1.0", summary: "Uses the host.",
  admit(request) {
    log.info(`looks up ${request.name}`);
    try {
      send("https://a.example.com");
    } catch (error) {
      if (error.kind !== "unavailable") return deny(`${error}`);
    }
    const node = get("v1", "Node", { name: "a" });
    return mutate(request, (pod) => { pod.metadata.labels = { zone: node.metadata.labels.zone }; });
  },
});
"#;
    fs::write(directory.join("src/plugin.js"), code).unwrap();
    fs::remove_file(directory.join("tests/plugin.test.js")).unwrap();
    let cases = r#"
allow: { cluster: [v1/Node], http: ["https://a.example.com"] }
cluster: [ { apiVersion: v1, kind: Node, metadata: { name: a, labels: { zone: z } } } ]
cases:
  - name: the node is found
    request: { object: { apiVersion: v1, kind: Pod, metadata: { name: web, namespace: shop } } }
    expect: { allowed: true, patch: [ { op: add, path: /metadata/labels, value: { zone: z } } ] }
"#;
    fs::write(directory.join("tests/cases.yaml"), cases).unwrap();
    let check = run_admittance(&directory, &["test", "--log", "info", "--run", "node"]).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stderr.contains("looks up web"), "{}", check.stderr);
    // The plugin's description declares neither the capability `http` nor changes of objects. `test` reports both.
    for message in [
        "is granted http without declaring it",
        "changes objects without declaring it",
    ] {
        assert!(check.stderr.contains(message), "{message} in {}", check.stderr);
    }
    // The program configures the plugin once, and takes a snapshot of the plugin's memory. Each call then starts from
    // this snapshot. The log has a line about the snapshot.
    assert!(check.stderr.contains("snapshot"), "{}", check.stderr);
    let code = r#"
import { deny, plugin } from "admittance";
import { get } from "admittance/environment";

export const { describe, configure, admit } = plugin({
  name: "host", version: "0.1.0", summary: "Uses the host.",
  admit: () => deny(`the region is ${get("REGION")}, the zone ${get("ZONE")}`),
});
"#;
    fs::write(directory.join("src/plugin.js"), code).unwrap();
    fs::write(directory.join("tests/cases.yaml"), REGION_CASES).unwrap();
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(!check.stderr.contains("npm install"), "{}", check.stderr);

    let code = r#"
import { plugin } from "admittance";
export const { describe, configure, admit } = plugin({
  name: "wrong", version: "0.1.0", summary: "Fails.",
  admit: () => new TextDecoder(),
});
"#;
    fs::write(directory.join("src/plugin.js"), code).unwrap();
    let check = run_admittance(&directory, &["test", "--run", "read"]).await;
    let message = "TextDecoder is not defined; use `text()` of a response, or decodeURIComponent (src/plugin.js:5)";
    assert!(check.stdout.contains(message), "{}{}", check.stdout, check.stderr);
    let code = code.replace(", admit }", " }");
    fs::write(directory.join("src/plugin.js"), code).unwrap();
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(2), "{}{}", check.stdout, check.stderr);
    let message = "src/plugin.js does not export admit; write";
    assert!(check.stderr.contains(message), "{}", check.stderr);

    fs::create_dir(directory.join("local")).unwrap();
    fs::write(
        directory.join("local/package.json"),
        r#"{"name": "local", "version": "1.0.0", "type": "module", "exports": "./index.js"}"#,
    )
    .unwrap();
    fs::write(
        directory.join("local/index.js"),
        "export const word = \"the region is eu, the zone undefined\";",
    )
    .unwrap();
    let manifest = fs::read_to_string(directory.join("package.json")).unwrap();
    let dependency = r#""dependencies": { "local": "file:local","#;
    fs::write(
        directory.join("package.json"),
        manifest.replace(r#""dependencies": {"#, dependency),
    )
    .unwrap();
    let code = r#"
import { deny, plugin } from "admittance";
import { word } from "local";

export const { describe, configure, admit } = plugin({
  name: "host", version: "0.1.0", summary: "Uses a dependency.", admit: () => deny(word),
});
"#;
    fs::write(directory.join("src/plugin.js"), code).unwrap();
    let mut test_command = admittance_command(&directory, &["test"]);
    test_command
        .env("npm_config_cache", &cache)
        .env("npm_config_offline", "true");
    let check = run_to_end(test_command).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stderr.contains("npm install"), "{}", check.stderr);
}

#[tokio::test]
async fn a_new_project_in_python_passes_its_tests() {
    let Some(wheels) = toolchain("ADMITTANCE_TEST_WHEELS", "Python") else {
        return;
    };
    let mut tests = Command::new("python3");
    tests
        .args(["-m", "unittest", "discover", "-s", "tests"])
        .env("PYTHONPATH", "src")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    assert_package_passes("python", tests).await;
    let (folder, check) = new_project_in(
        "python",
        &[("PIP_FIND_LINKS", wheels.as_path())],
        ("python3", &["-m", "pip", "wheel", "--quiet", "--no-deps", "."]),
        (
            "sh",
            &["-c", "cd .. && python3 -m zipfile -e ../../copy/sdk/python/*.whl ."],
        ),
    )
    .await;
    assert!(
        check.stdout.contains("ok    .venv/bin/python -m unittest"),
        "{}",
        check.stdout
    );
    assert_templates_pass("python", &[("PIP_FIND_LINKS", wheels.as_path())]).await;
    // The variable `REGION` is granted only when the plugin runs, and is not set while the plugin is built. So the
    // plugin has to read the variable during a call.
    let directory = folder.path().join("require-label");
    let code = r#"
from admittance import Plugin, Request, Response, deny, environment


def admit(request: Request, settings: object) -> Response:
    return deny(f"the region is {environment.get('REGION')}, the zone {environment.get('ZONE')}")


plugin = Plugin(name="host", version="0.1.0", summary="Uses the host.", admit=admit)
WitWorld = plugin.component()
"#;
    fs::write(directory.join("src/plugin.py"), code).unwrap();
    fs::remove_file(directory.join("tests/test_plugin.py")).unwrap();
    fs::write(directory.join("tests/cases.yaml"), REGION_CASES).unwrap();
    let check = run_admittance(&directory, &["test"]).await;
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);

    let code = code.replace("return deny(", "return request.nothing(");
    fs::write(directory.join("src/plugin.py"), code).unwrap();
    let check = run_admittance(&directory, &["test"]).await;
    let message = "'Request' object has no attribute 'nothing' (plugin.py:6)";
    assert!(check.stdout.contains(message), "{}{}", check.stdout, check.stderr);
}

/// Compares the compiled extension with its source. `RENEW=1 cargo test -p admittance-tests extension` renews it.
#[test]
fn the_compiled_extension_for_python_is_current() {
    let package = repository().join("sdk/python");
    let path = package.join("src/admittance/_immortal.cpython-314-wasm32-wasi.so");
    let expected = wat::parse_file(package.join("native/immortal.wat")).unwrap();
    if env::var_os("RENEW").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let is_current = fs::read(&path).unwrap() == expected;
    assert!(is_current, "native/immortal.wat has changed; renew {}", path.display());
}

async fn run_make(directory: &Path) {
    let mut make = Command::new("make");
    make.current_dir(directory);
    let output = run_to_end(make).await;
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}
