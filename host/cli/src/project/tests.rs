use super::*;

#[test]
fn only_the_component_of_the_project_itself_is_used() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "other"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("Cargo.toml"), "").unwrap();
    }
    let own = fs::canonicalize(folder.path().join("own/Cargo.toml")).unwrap();
    let line = |reason: &str, package: &str, file: &str| {
        let manifest = folder.path().join(package).join("Cargo.toml");
        serde_json::json!({"reason": reason, "manifest_path": manifest, "filenames": ["a.rlib", file]})
            .to_string()
    };
    for (line, expected) in [
        (line("compiler-artifact", "own", "a.wasm"), Some("a.wasm")),
        (line("compiler-artifact", "own", "a.so"), None),
        (line("compiler-artifact", "other", "a.wasm"), None),
        (line("build-script-executed", "own", "a.wasm"), None),
        (
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
            None,
        ),
        ("not JSON".to_owned(), None),
    ] {
        assert_eq!(
            component_in(&line, &own).as_deref(),
            expected.map(Path::new),
            "{line}"
        );
    }
    assert!(Project::at(folder.path()).is_none());
}

/// The commands run in the directory of the project, with its environment, and errors name missing programs.
#[test]
fn projects_are_built_with_their_commands() {
    const PROJECT: Language = Language {
        files: &["manifest"],
        setup: &[SetupStep {
            result: "ready",
            named_in: Some((&["manifest", "none"], "kept")),
            command: &["sh", "-c", "echo 1 >> ready"],
        }],
        build: &["sh", "-c", "test -f ready && echo \"$WORD\" > a.wasm"],
        component: BuiltComponent::File("a.wasm"),
        test: &["sh", "-c", "exit 5"],
        no_tests: None,
        environment: &[("WORD", "word")],
    };
    const OTHERS: [(Language, &str); 4] = [
        (
            Language {
                setup: &[SetupStep {
                    result: "none",
                    named_in: None,
                    command: &["false"],
                }],
                ..PROJECT
            },
            "`false` failed; its output is above",
        ),
        (
            Language {
                build: &["false"],
                ..PROJECT
            },
            "does not compile: `false` failed",
        ),
        (
            Language {
                component: BuiltComponent::File("b.wasm"),
                ..PROJECT
            },
            "writes no b.wasm; let it write the component there",
        ),
        (
            Language {
                build: &["./none"],
                ..PROJECT
            },
            "./none cannot be started: No such file",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let project = |language| Project {
        directory: folder.path().to_owned(),
        language,
    };
    for _ in 0..2 {
        let component = project(&PROJECT).build().unwrap();
        assert_eq!(files::read(&component).unwrap(), "word\n");
    }
    let ready = || files::read(&folder.path().join("ready")).unwrap();
    assert_eq!(ready(), "1\n");
    // After a change of the manifest, the dependencies are installed again.
    fs::write(folder.path().join("manifest"), "more").unwrap();
    for _ in 0..2 {
        project(&PROJECT).build().unwrap();
    }
    assert_eq!(ready(), "1\n1\n");
    assert!(!project(&PROJECT).test().unwrap());
    const NO_TESTS: Language = Language {
        no_tests: Some(5),
        ..PROJECT
    };
    assert!(project(&NO_TESTS).test().unwrap());
    for (language, told) in &OTHERS {
        let error = project(language).build().unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let missing = io::Error::from(io::ErrorKind::NotFound);
    for (program, told) in [
        (
            "npm",
            "npm was not found; install Node.js 20 or newer (https://nodejs.org), or name it in NPM",
        ),
        ("python3", "python3 was not found; install Python 3.10"),
        (
            "cargo",
            "cargo was not found; install Rust with rustup (https://rustup.rs), or name it in CARGO",
        ),
    ] {
        let error = not_started(&[program], &missing);
        assert!(error.starts_with(told), "{error}");
    }
}
