use super::*;

#[test]
fn only_the_component_of_the_project_itself_is_used() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["own", "other"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("Cargo.toml"), "").unwrap();
    }
    let own_manifest = fs::canonicalize(folder.path().join("own/Cargo.toml")).unwrap();
    let line = |reason: &str, package: &str, file: &str| {
        let manifest = folder.path().join(package).join("Cargo.toml");
        serde_json::json!({"reason": reason, "manifest_path": manifest, "filenames": ["a.rlib", file]}).to_string()
    };
    for (line, expected) in [
        (line("compiler-artifact", "own", "a.wasm"), Some("a.wasm")),
        (line("compiler-artifact", "own", "a.so"), None),
        (line("compiler-artifact", "other", "a.wasm"), None),
        (line("build-script-executed", "own", "a.wasm"), None),
        ("{\"reason\":\"build-finished\",\"success\":true}".to_owned(), None),
        ("not JSON".to_owned(), None),
    ] {
        assert_eq!(
            component_in(&line, &own_manifest).as_deref(),
            expected.map(Path::new),
            "{line}"
        );
    }
    assert!(Project::in_directory(folder.path()).is_none());
}

#[test]
fn projects_are_built_with_the_commands_of_their_language() {
    const PROJECT: Language = Language {
        files: &["manifest"],
        setup_steps: &[SetupStep {
            result_path: "ready",
            dependencies: Some((&["manifest", "none"], "kept")),
            command: &["sh", "-c", "echo 1 >> ready"],
        }],
        build_command: &["sh", "-c", "test -f ready && echo \"$WORD\" > a.wasm"],
        component: BuiltComponent::File {
            path: "a.wasm",
            record: "record",
        },
        test_command: &["sh", "-c", "exit 5"],
        no_tests_exit_code: None,
        environment: &[("WORD", "word")],
    };
    const BROKEN_PROJECTS: [(Language, &str); 4] = [
        (
            Language {
                setup_steps: &[SetupStep {
                    result_path: "none",
                    dependencies: None,
                    command: &["false"],
                }],
                ..PROJECT
            },
            "`false` failed; its output is above",
        ),
        (
            Language {
                build_command: &["false"],
                ..PROJECT
            },
            "does not compile: `false` failed",
        ),
        (
            Language {
                component: BuiltComponent::File {
                    path: "b.wasm",
                    record: "record",
                },
                ..PROJECT
            },
            "writes no b.wasm; let it write the component there",
        ),
        (
            Language {
                build_command: &["./none"],
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
    fs::write(folder.path().join("manifest"), "more").unwrap();
    for _ in 0..2 {
        project(&PROJECT).build().unwrap();
    }
    assert_eq!(ready(), "1\n1\n");
    assert!(!project(&PROJECT).test().unwrap());
    const NO_TESTS: Language = Language {
        no_tests_exit_code: Some(5),
        ..PROJECT
    };
    assert!(project(&NO_TESTS).test().unwrap());
    for (language, part) in &BROKEN_PROJECTS {
        let error = project(language).build().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let missing = io::Error::from(io::ErrorKind::NotFound);
    for (program, part) in [
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
        let error = start_failure(&[program], &missing);
        assert!(error.starts_with(part), "{error}");
    }
}

#[test]
fn a_project_that_did_not_change_is_not_built_again() {
    const PROJECT: Language = Language {
        files: &["manifest"],
        setup_steps: &[],
        build_command: &["sh", "-c", "cat src/code > a.wasm; echo 1 >> .builds"],
        component: BuiltComponent::File {
            path: "a.wasm",
            record: ".record",
        },
        test_command: &[],
        no_tests_exit_code: None,
        environment: &[],
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for directory in ["project/src", "project/tests", "project/node_modules/@scope", "linked"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    std::os::unix::fs::symlink(path("linked"), path("project/node_modules/@scope/linked")).unwrap();
    fs::write(path("project/src/code"), "1").unwrap();
    let project = Project {
        directory: path("project"),
        language: &PROJECT,
    };
    let builds = || {
        project.build().unwrap();
        files::read(&path("project/.builds")).unwrap().lines().count()
    };
    assert_eq!((builds(), builds()), (1, 1));
    for (file, expected) in [
        ("project/tests/cases.yaml", 1),
        ("project/src/code", 2),
        ("linked/index.js", 3),
        // The build itself writes `a.wasm`. If anybody changes this file after the build, the project is built again.
        ("project/a.wasm", 4),
    ] {
        fs::write(path(file), file).unwrap();
        assert_eq!((builds(), builds()), (expected, expected), "{file}");
    }
    fs::remove_file(path("project/a.wasm")).unwrap();
    assert_eq!(builds(), 5);
}
