//! Checks rules for the whole repository, about dependencies between its crates and on external crates.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use admittance_tests::repository;
use serde::Deserialize;
use spdx::{Expression, ParseMode};

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    workspace_members: BTreeSet<String>,
    resolve: CargoResolve,
}

#[derive(Deserialize)]
struct CargoResolve {
    nodes: Vec<ResolvedPackage>,
}

/// A package in the output of `cargo metadata`, with the features that are enabled in this build.
#[derive(Deserialize)]
struct ResolvedPackage {
    id: String,
    features: BTreeSet<String>,
}

#[derive(Deserialize)]
struct CargoPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
    manifest_path: PathBuf,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    doctest: bool,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

impl std::fmt::Display for CargoPackage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

fn cargo_command() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(repository());
    command
}

fn texts_below(folder: PathBuf) -> Vec<(PathBuf, String)> {
    let (mut folders, mut texts) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                texts.extend(fs::read_to_string(&path).map(|text| (path, text)));
            }
        }
    }
    texts
}

fn metadata(platforms: &[String]) -> CargoMetadata {
    let mut command = cargo_command();
    command.args(["metadata", "--format-version", "1", "--locked"]);
    for platform in platforms {
        command.args(["--filter-platform", platform]);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The settings of deny.toml that these tests read. Serde ignores the others.
#[derive(Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: SourceFiles,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SourceFiles {
    allow_registry: Vec<String>,
}

#[test]
fn dependencies_are_allowed_by_deny_toml() {
    let deny: Deny = toml::from_str(&fs::read_to_string(repository().join("deny.toml")).unwrap()).unwrap();
    let metadata = metadata(&deny.graph.targets);
    assert!(metadata.packages.len() > 100, "all dependencies are listed");
    let mut problems = Vec::new();
    for package in &metadata.packages {
        if metadata.workspace_members.contains(&package.id) {
            assert_eq!(package.license.as_deref(), Some("Apache-2.0"), "{package}");
            continue;
        }
        if !is_allowed(package.license.as_deref().unwrap_or_default(), &deny.licenses.allow) {
            problems.push(format!("{package}: the licence {:?}", package.license));
        }
        let registry = package
            .source
            .as_deref()
            .and_then(|source| source.strip_prefix("registry+"));
        if !registry.is_some_and(|registry| deny.sources.allow_registry.iter().any(|allowed| allowed == registry)) {
            problems.push(format!("{package}: the source {:?}", package.source));
        }
        if let Some(ban) = deny.bans.deny.iter().find(|ban| ban.name == package.name) {
            problems.push(format!("{package}: {}", ban.reason));
        }
    }
    assert!(
        problems.is_empty(),
        "deny.toml does not allow:\n{}",
        problems.join("\n")
    );
}

fn is_allowed(license: &str, allowed_licenses: &[String]) -> bool {
    Expression::parse_mode(license, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(|requirement| allowed_licenses.contains(&requirement.to_string())))
}

/// Most advisories about wasmtime concern features that are not enabled here.
#[test]
fn wasmtime_is_built_with_few_features() {
    let metadata = metadata(&[]);
    for (name, expected) in [
        (
            "wasmtime",
            // The last two features in this list are not enabled by our Cargo.toml but by other dependencies.
            &[
                "async",
                "component-model",
                "cranelift",
                "parallel-compilation",
                "pooling-allocator",
                "runtime",
                "std",
                "once_cell",
                "wasmtime-jit-icache-coherence",
            ][..],
        ),
        ("wasmtime-wasi", &["p2"]),
        ("wasmtime-wizer", &["component-model"]),
    ] {
        let packages = metadata.packages.iter().filter(|package| package.name == name);
        let ids: Vec<_> = packages.map(|package| &package.id).collect();
        let nodes = metadata.resolve.nodes.iter();
        let matching_nodes: Vec<_> = nodes.filter(|node| ids.contains(&&node.id)).collect();
        assert!(!matching_nodes.is_empty(), "{name}");
        for node in matching_nodes {
            let expected = expected.iter().map(|feature| (*feature).to_owned());
            assert_eq!(node.features, expected.collect(), "{}", node.id);
        }
    }
}

/// (feature of the library, dependencies that the library has only with this feature)
const PACKAGES_BY_FEATURE: [(&str, &[&str]); 3] = [
    ("plugins", &["wasmtime", "cranelift-codegen"]),
    ("registries", &["docker_credential", "http-auth"]),
    ("signatures", &["sigstore-verify", "p256"]),
];

/// A program that embeds the library compiles only what its chosen features need, and never a Kubernetes client.
#[test]
fn the_library_builds_only_what_its_features_need() {
    let tree = |arguments: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "tree",
                "--locked",
                "-p",
                "admittance",
                "-e",
                "normal",
                "--prefix",
                "none",
            ])
            .args(arguments)
            .current_dir(repository())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "cargo tree: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let has_package = |tree: &str, name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let default = tree(&[]);
    for name in ["kube", "clap"] {
        assert!(!has_package(&default, name), "{name}");
    }
    let minimal_tree = tree(&["--no-default-features"]);
    for (feature, names) in PACKAGES_BY_FEATURE {
        let feature_tree = tree(&["--no-default-features", "--features", feature]);
        for name in names {
            assert!(
                has_package(&default, name) && has_package(&feature_tree, name),
                "{feature}: {name}"
            );
            assert!(!has_package(&minimal_tree, name), "{feature}: {name}");
        }
        for (other, names) in PACKAGES_BY_FEATURE.iter().filter(|(other, _)| *other != feature) {
            for name in *names {
                assert!(!has_package(&feature_tree, name), "{feature}: {name} of {other}");
            }
        }
    }
}

#[test]
fn licences_are_evaluated_as_expressions() {
    let allowed_licenses = ["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for (license, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("", false),
        ("no licence at all", false),
    ] {
        assert_eq!(is_allowed(license, &allowed_licenses), expected, "{license:?}");
    }
}

/// The crates of the host in layers, from the top. A crate may depend only on crates in layers below its own.
const LAYERS: [&[&str]; 8] = [
    &["admittance-cli"],
    &["admittance-driver"],
    &["admittance-gateway"],
    &["admittance-admin", "admittance-bcs", "admittance-fleet"],
    &["admittance"],
    &[
        "admittance-catalog",
        "admittance-cluster",
        "admittance-definitions",
        "admittance-dialect",
        "admittance-outbound",
        "admittance-sandbox",
        "admittance-webhook",
    ],
    &["admittance-conditions", "admittance-mutation"],
    &["admittance-admission", "admittance-net", "admittance-watch"],
];

fn may_use(dependent: &str, dependency: &str) -> bool {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    match (layer(dependent), layer(dependency)) {
        // The fuzz targets may depend on every crate of the host. No crate depends on the fuzz targets.
        (None, Some(_)) if dependent == "admittance-fuzz" => true,
        // `admittance-tests` may use `admittance-net`, because `cargo task hostile` calls a function of it that
        // shortens the time slice of threads. The driver calls the same function.
        (None, Some(_)) if (dependent, dependency) == ("admittance-tests", "admittance-net") => true,
        // A crate may not use another crate of the same layer. There is one exception: `admittance-net` uses
        // `admittance-watch` to reload certificates when their files change.
        _ if (dependent, dependency) == ("admittance-net", "admittance-watch") => true,
        (Some(dependent_layer), Some(dependency_layer)) => dependent_layer < dependency_layer,
        (Some(_), None) | (None, Some(_)) => false,
        // Here, neither of the two crates belongs to the host. Such a crate may depend on the SDK, and the SDK may
        // depend on the crate with its macros. Nothing else is allowed.
        (None, None) => matches!(
            (dependent, dependency),
            ("admittance-sdk", "admittance-sdk-macros") | (_, "admittance-sdk")
        ),
    }
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let metadata = metadata(&["wasm32-wasip2".to_owned()]);
    let members: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| metadata.workspace_members.contains(&package.id))
        .collect();
    for layered in LAYERS.concat() {
        assert!(
            members.iter().any(|package| package.name == layered),
            "{layered} is not a crate of the workspace"
        );
    }
    for package in members {
        for dependency in &package.dependencies {
            // A crate may have a dev-dependency in any layer, so only other dependencies are checked.
            if dependency.path.is_some() && dependency.kind.as_deref() != Some("dev") {
                let is_allowed_use = may_use(&package.name, &dependency.name);
                assert!(is_allowed_use, "{} must not use {}", package.name, dependency.name);
            }
        }
    }
}

/// (source file that reads the grants of capabilities, the reason why it may)
const USES_OF_CAPABILITIES: [(&str, &str); 9] = [
    (
        "host/cli/src/kubernetes/needs.rs",
        "the role of the program has what plugins may read",
    ),
    (
        "host/definitions/src/forms/gatekeeper/template.rs",
        "constraints read what a SyncSet names",
    ),
    (
        "host/definitions/src/forms/kubewarden.rs",
        "policies have the grants of their document",
    ),
    ("host/definitions/src/hook/rego.rs", "an inventory needs kinds to read"),
    (
        "host/driver/src/locations/kubernetes.rs",
        "no chain of a namespace is limited in values",
    ),
    (
        "host/runtime/src/live/plugins.rs",
        "the status lists what a plugin may read",
    ),
    (
        "host/sandbox/src/kubewarden/host_calls.rs",
        "policies call with another protocol",
    ),
    (
        "host/sandbox/src/kubewarden/images.rs",
        "policies call with another protocol",
    ),
    (
        "host/sandbox/src/kubewarden/preview1.rs",
        "policies call with another protocol",
    ),
];

/// Capabilities may be named only in the files that docs/architecture.md or [`USES_OF_CAPABILITIES`] lists.
#[test]
fn capabilities_are_named_only_in_documented_source_files() {
    let page = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let (_, section) = page.split_once("## A new capability of plugins").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented_paths: Vec<&str> = rows.collect();
    assert!((4..=8).contains(&documented_paths.len()), "{documented_paths:?}");
    for documented_path in &documented_paths {
        assert!(repository().join(documented_path).exists(), "{documented_path}");
    }
    for (path, text) in texts_below(repository().join("host")) {
        let path = path.strip_prefix(repository()).unwrap().display().to_string();
        let text = text.split("\nmod tests {").next().unwrap_or_default();
        let is_test = path.contains("/tests") || path.contains("/examples/") || !path.ends_with(".rs");
        let is_documented = documented_paths
            .iter()
            .any(|documented_path| path.starts_with(documented_path.trim_end_matches(".rs")));
        if is_test || is_documented || USES_OF_CAPABILITIES.iter().any(|(file, _)| *file == path) {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let used_capability = ["cluster", "http", "images", "environment"].iter().find(|capability| {
                ["grants", ".allow"].iter().any(|prefix| {
                    let field = format!("{prefix}.{capability}");
                    !line.trim_start().starts_with("//") && line.contains(&field)
                })
            });
            assert_eq!(
                used_capability, None,
                "{path}:{number}: this belongs to the places in docs/architecture.md"
            );
        }
    }
}

/// The published archives of the SDK and of its macros compile without files outside of the archives.
#[test]
fn the_sdk_can_be_packaged() {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let output = cargo_command()
        .args(["package", "--offline", "--allow-dirty"])
        .args(["-p", "admittance-sdk-macros", "-p", "admittance-sdk"])
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo package: {stderr}");
    for folder in ["sdk/src", "sdk/macros/src"] {
        for (path, text) in texts_below(repository().join(folder)) {
            assert!(
                !text.contains("../../"),
                "{} reads outside of its package",
                path.display()
            );
        }
    }
    // The directory of the WIT files in the package is a symbolic link, which `cargo package` follows.
    assert!(repository().join("sdk/wit/world.wit").exists());
    assert!(fs::symlink_metadata(repository().join("sdk/wit")).unwrap().is_symlink());
}

/// A crate may set `doctest = false`, which saves compile time, only if its documentation contains no examples in Rust.
#[test]
fn every_example_in_a_docstring_is_a_test() {
    let CargoMetadata {
        packages,
        workspace_members,
        ..
    } = metadata(&[]);
    for package in packages {
        if !workspace_members.contains(&package.id) || package.targets.iter().any(|target| target.doctest) {
            continue;
        }
        for (path, text) in texts_below(package.manifest_path.parent().unwrap().join("src")) {
            let fences = text.lines().filter_map(|line| {
                let (comment, language) = line.split_once("```")?;
                comment.trim_start().starts_with("//").then_some(language)
            });
            // Fences open and close blocks in turn, so every second fence opens a block. A block is an example in Rust
            // if there is nothing behind this fence, or one of the following words.
            let is_example = |language: &str| {
                let rust = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];
                language.split(',').any(|word| rust.contains(&word.trim()))
            };
            assert!(
                !fences.step_by(2).any(is_example),
                "{}: remove `doctest = false` from the Cargo.toml of {package}",
                path.display()
            );
        }
    }
}
