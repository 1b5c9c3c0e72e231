//! The files of new projects.

use admittance_definitions::CHAIN_SCHEMA;
use clap::ValueEnum;

use crate::schema;

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum Lang {
    #[default]
    Rust,
    Python,
    Javascript,
}

/// A path and a content. In a text, `{{name}}`, `{{crate}}`, `{{module}}`, `{{setup}}` and `{{sdk}}` are replaced.
type File = (&'static str, &'static [u8]);

pub(super) struct ProjectTemplate {
    /// The path of the component.
    pub(super) module: &'static str,
    /// The step of CI that installs the language.
    pub(super) setup: &'static str,
    own: &'static [File],
    /// The package for plugins, which is in no registry yet.
    package: &'static [File],
}

macro_rules! template {
    ($folder:literal: $($path:literal from $file:literal),*) => {
        &[$(($path, include_bytes!(concat!("../../../../sdk/templates/", $folder, "/", $file)))),*]
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

const RUST: ProjectTemplate = ProjectTemplate {
    module: "target/wasm32-wasip2/release/{{crate}}.wasm",
    setup: "- run: rustup target add wasm32-wasip2",
    own: template!("rust":
        "Cargo.toml" from "manifest.toml",
        ".cargo/config.toml" from "cargo-config.toml",
        "src/lib.rs" from "lib.rs",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    package: &[],
};

const JAVASCRIPT: ProjectTemplate = ProjectTemplate {
    module: "plugin.wasm",
    setup: "- uses: actions/setup-node@v4\n        with: { node-version: 22 }",
    own: template!("javascript":
        "package.json" from "package.json",
        "src/plugin.js" from "plugin.js",
        "tests/plugin.test.js" from "plugin.test.js",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    package: package!("javascript":
        "package.json", "index.js", "index.d.ts", "schema.js", "sample.js", "errors.js", "message.js",
        "cluster.js", "cluster.d.ts", "environment.js", "environment.d.ts", "http.js", "http.d.ts", "log.js", "log.d.ts",
        "testing.js", "testing.d.ts",
        "native/cluster.js", "native/environment.js", "native/http.js", "native/log.js",
        "wit/types.wit", "wit/world.wit", "wit/environment.wit", "wit/cluster.wit", "wit/http.wit",
        "wit/deps/cli/environment.wit", "wit/deps/logging/logging.wit"
    ),
};

const PYTHON: ProjectTemplate = ProjectTemplate {
    module: "plugin.wasm",
    setup: "- uses: actions/setup-python@v5\n        with: { python-version: \"3.13\" }",
    own: template!("python":
        "pyproject.toml" from "pyproject.toml",
        "requirements.txt" from "requirements.txt",
        "src/plugin.py" from "plugin.py",
        "tests/test_plugin.py" from "test_plugin.py",
        ".gitignore" from "gitignore",
        "README.md" from "README.md"
    ),
    package: package!("python/src/admittance":
        "__init__.py", "py.typed", "cluster.py", "component.py", "environment.py", "heap.py", "host.py", "http.py",
        "log.py", "patch.py", "plugin.py", "request.py", "response.py", "sample.py", "schema.py", "testing.py",
        "_immortal.cpython-314-wasm32-wasi.so",
        "wit/types.wit", "wit/world.wit", "wit/environment.wit", "wit/cluster.wit", "wit/http.wit",
        "wit/deps/cli/environment.wit", "wit/deps/logging/logging.wit"
    ),
};

/// The files that projects in all languages have.
const COMMON: [File; 5] = [
    (
        "tests/cases.yaml",
        include_bytes!("../../../../sdk/templates/cases.yaml"),
    ),
    (
        "chain.yaml",
        include_bytes!("../../../../sdk/templates/chain.yaml"),
    ),
    (
        ".github/workflows/test.yaml",
        include_bytes!("../../../../sdk/templates/ci.yaml"),
    ),
    ("schemas/test.json", schema::TEST.as_bytes()),
    ("schemas/chain.json", CHAIN_SCHEMA.as_bytes()),
];

impl Lang {
    pub(super) fn template(self) -> &'static ProjectTemplate {
        match self {
            Self::Rust => &RUST,
            Self::Python => &PYTHON,
            Self::Javascript => &JAVASCRIPT,
        }
    }
}

impl ProjectTemplate {
    pub(super) fn files(&self) -> impl Iterator<Item = File> {
        [self.own, self.package, &COMMON].into_iter().flatten().copied()
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

    fn below(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let paths = entries.flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => vec![path],
        });
        paths.collect()
    }

    /// A project contains the whole package, except for its tests.
    #[test]
    fn a_project_has_the_whole_package() {
        for (lang, folder) in [
            (Lang::Javascript, "javascript"),
            (Lang::Python, "python/src/admittance"),
        ] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../sdk")
                .join(folder);
            let files = below(&folder);
            let is_shipped = |path: &&Path| !path.starts_with("test") && !path.starts_with("__pycache__");
            let expected: BTreeSet<_> = files
                .iter()
                .map(|path| path.strip_prefix(&folder).unwrap())
                .filter(is_shipped)
                .collect();
            let package = lang.template().package.iter();
            let found: BTreeSet<_> = package
                .map(|(path, _)| Path::new(path).strip_prefix("vendor/admittance").unwrap())
                .collect();
            assert_eq!(found, expected, "{lang:?}");
        }
    }
}
