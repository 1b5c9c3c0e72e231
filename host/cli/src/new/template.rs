//! Contains the files of new projects.

use admittance_definitions::CHAIN_SCHEMA;
use clap::ValueEnum;

use crate::schema;

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum Lang {
    #[default]
    Rust,
    Python,
    Javascript,
    C,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum PluginTemplate {
    /// Refuses objects that do not carry a label.
    #[default]
    Validating,
    /// Adds a label to objects without it.
    Mutating,
    /// Refuses an object if the object and its namespace have the same label with different values. Looks up the
    /// namespace in the cluster.
    Capabilities,
}

type File = (&'static str, &'static [u8]);

pub(super) struct LanguageTemplate {
    /// The path of the component that a build of the project writes.
    pub(super) module: &'static str,
    /// The step of the CI workflow that installs the language.
    pub(super) setup: &'static str,
    project_files: &'static [File],
    /// The code and the native tests of the project, for each [`PluginTemplate`].
    code: [&'static [File]; 3],
    /// The files of the SDK. Each project contains them, because no registry has the SDK yet.
    pub(super) sdk: &'static [File],
}

macro_rules! template {
    ($folder:literal: $($path:literal from $($file:literal)+),*) => {
        &[$(($path, include_bytes!(concat!("../../../../sdk/templates/", $folder, "/", $($file),+)))),*]
    };
}

/// Embeds the code for each template of a plugin, from a directory with the template's name.
macro_rules! code {
    ($lang:literal: $($path:literal from $file:literal),*) => {
        [
            template!($lang: $($path from "validating/" $file),*),
            template!($lang: $($path from "mutating/" $file),*),
            template!($lang: $($path from "capabilities/" $file),*),
        ]
    };
}

macro_rules! package {
    ($folder:literal: $($file:literal),*) => {
        &[$((
            concat!("vendor/admittance/", $file),
            include_bytes!(concat!("../../../../sdk/", $folder, "/", $file)),
        )),*]
    };
}

const RUST: LanguageTemplate = LanguageTemplate {
    module: "target/wasm32-wasip2/release/{{crate}}.wasm",
    setup: "- run: rustup target add wasm32-wasip2",
    project_files: template!("rust":
        "Cargo.toml" from "manifest.toml",
        ".cargo/config.toml" from "cargo-config.toml",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    code: code!("rust": "src/lib.rs" from "lib.rs"),
    sdk: package!(".": "Cargo.toml", "macros/Cargo.toml", "macros/src/arguments.rs", "macros/src/derives.rs", "macros/src/export.rs", "macros/src/lib.rs", "src/bindings.rs", "src/cluster.rs", "src/error.rs", "src/http.rs", "src/lib.rs", "src/log.rs", "src/merge.rs", "src/patch.rs", "src/plugin.rs", "src/pointer.rs", "src/reader.rs", "src/request.rs", "src/response.rs", "src/sample.json", "src/sample.rs", "src/settings.rs", "src/testing.rs", "src/testing/cluster.rs", "src/text.rs", "src/workload.rs", "src/workload/container.rs", "src/workload/shape.rs", "wit/cluster.wit", "wit/deps/cli/environment.wit", "wit/deps/logging/logging.wit", "wit/environment.wit", "wit/http.wit", "wit/types.wit", "wit/world.wit"),
};

const JAVASCRIPT: LanguageTemplate = LanguageTemplate {
    module: "plugin.wasm",
    setup: "- uses: actions/setup-node@v4\n        with: { node-version: 22 }",
    project_files: template!("javascript":
        "package.json" from "package.json",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    code: code!("javascript": "src/plugin.js" from "plugin.js", "tests/plugin.test.js" from "plugin.test.js"),
    sdk: package!("javascript":
        "package.json", "index.js", "index.d.ts", "check.js", "schema.js", "sample.js", "errors.js", "message.js",
        "cluster.js", "cluster.d.ts", "environment.js", "environment.d.ts", "http.js", "http.d.ts", "log.js", "log.d.ts",
        "testing.js", "testing.d.ts",
        "native/cluster.js", "native/environment.js", "native/http.js", "native/log.js",
        "wit/types.wit", "wit/world.wit", "wit/environment.wit", "wit/cluster.wit", "wit/http.wit",
        "wit/deps/cli/environment.wit", "wit/deps/logging/logging.wit"
    ),
};

const PYTHON: LanguageTemplate = LanguageTemplate {
    module: "plugin.wasm",
    setup: "- uses: actions/setup-python@v5\n        with: { python-version: \"3.13\" }",
    project_files: template!("python":
        "pyproject.toml" from "pyproject.toml",
        "requirements.txt" from "requirements.txt",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    code: code!("python": "src/plugin.py" from "plugin.py", "tests/test_plugin.py" from "test_plugin.py"),
    sdk: package!("python/src/admittance":
        "__init__.py", "py.typed", "cluster.py", "component.py", "environment.py", "heap.py", "host.py", "http.py",
        "log.py", "patch.py", "plugin.py", "request.py", "response.py", "sample.py", "schema.py", "testing.py",
        "_immortal.cpython-314-wasm32-wasi.so",
        "wit/types.wit", "wit/world.wit", "wit/environment.wit", "wit/cluster.wit", "wit/http.wit",
        "wit/deps/cli/environment.wit", "wit/deps/logging/logging.wit"
    ),
};

const C: LanguageTemplate = LanguageTemplate {
    module: "plugin.wasm",
    setup: "- run: sudo apt-get update && sudo apt-get install -y clang lld wasi-libc libclang-rt-dev-wasm32",
    project_files: template!("c":
        "Makefile" from "Makefile",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    code: code!("c": "src/plugin.c" from "plugin.c"),
    sdk: package!("c": "admittance.c", "admittance.h", "plugin.c", "plugin.h", "plugin_component_type.o"),
};

const EXAMPLES: [&[File]; 3] = code!(".": "tests/cases.yaml" from "cases.yaml", "chain.yaml" from "chain.yaml");

const COMMON_FILES: [File; 3] = [
    (
        ".github/workflows/test.yaml",
        include_bytes!("../../../../sdk/templates/ci.yaml"),
    ),
    ("schemas/test.json", schema::TEST.as_bytes()),
    ("schemas/chain.json", CHAIN_SCHEMA.as_bytes()),
];

impl Lang {
    pub(super) fn template(self) -> &'static LanguageTemplate {
        match self {
            Self::Rust => &RUST,
            Self::Python => &PYTHON,
            Self::Javascript => &JAVASCRIPT,
            Self::C => &C,
        }
    }
}

impl LanguageTemplate {
    pub(super) fn files(&self, template: PluginTemplate) -> impl Iterator<Item = File> {
        let [code, examples] = [&self.code, &EXAMPLES].map(|templates| template.files_in(templates));
        [self.project_files, code, examples, &COMMON_FILES]
            .into_iter()
            .flatten()
            .copied()
    }
}

impl PluginTemplate {
    pub(super) fn summary(self) -> &'static str {
        match self {
            Self::Validating => "Refuses objects that do not carry a label.",
            Self::Mutating => "Adds a label to objects without it.",
            Self::Capabilities => "Refuses objects whose label differs from their namespace's.",
        }
    }

    fn files_in(self, templates: &[&'static [File]; 3]) -> &'static [File] {
        let [validating, mutating, capabilities] = templates;
        match self {
            Self::Validating => validating,
            Self::Mutating => mutating,
            Self::Capabilities => capabilities,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn paths_below(directory: &Path) -> Vec<PathBuf> {
        if directory.is_file() {
            return vec![directory.to_owned()];
        }
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let paths = entries.flat_map(|path| if path.is_dir() { paths_below(&path) } else { vec![path] });
        paths.collect()
    }

    #[test]
    fn a_project_contains_the_whole_sdk_except_for_its_tests() {
        for (lang, folder, parts) in [
            (Lang::Rust, "", &["Cargo.toml", "src", "macros", "wit"][..]),
            (Lang::Javascript, "javascript", &[""]),
            (Lang::Python, "python/src/admittance", &[""]),
        ] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").join(folder);
            let files: Vec<_> = parts.iter().flat_map(|part| paths_below(&folder.join(part))).collect();
            let is_shipped = |path: &&Path| {
                !path.starts_with("test") && !path.starts_with("__pycache__") && !path.ends_with("tests.rs")
            };
            let expected: BTreeSet<_> = files
                .iter()
                .map(|path| path.strip_prefix(&folder).unwrap())
                .filter(is_shipped)
                .collect();
            let package = lang.template().sdk.iter();
            let sdk_files: BTreeSet<_> = package
                .map(|(path, _)| Path::new(path).strip_prefix("vendor/admittance").unwrap())
                .collect();
            assert_eq!(sdk_files, expected, "{lang:?}");
        }
    }
}
