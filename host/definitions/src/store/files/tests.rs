use std::{fs, io::Write as _, time::Duration};

use tempfile::TempDir;

use super::*;

struct ReadDirectory {
    folder: TempDir,
    store: FileStore,
}

impl ReadDirectory {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("chains")).unwrap();
        fs::write(path("more.yaml"), "more").unwrap();
        Self {
            store: FileStore::new(vec![path("more.yaml"), path("chains")]),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    async fn read(&self) -> String {
        match self.store.read().await {
            Ok(files) => {
                let describe = |file: &DefinitionFile| {
                    let name = file.path.strip_prefix(self.folder.path()).unwrap();
                    format!("{}={}", name.display(), file.text)
                };
                files.iter().map(describe).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string().replace(&format!("{}/", self.path("").display()), ""),
        }
    }

    fn change(&self, name: &str, before: Option<&str>, after: Option<&str>) -> FileChange {
        FileChange {
            path: self.path(name),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        }
    }

    async fn wait_for_change(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.store.wait_for_change()).await;
        assert!(waited.is_ok(), "the change is not seen");
    }
}

#[tokio::test]
async fn a_store_reads_and_owns_its_files() {
    let directory = ReadDirectory::new();
    assert_eq!(directory.read().await, "more.yaml=more");
    for name in ["chains/b.json", "chains/a.yaml", "chains/.a.yaml", "chains/notes"] {
        directory.write(name, "1");
    }
    assert_eq!(directory.read().await, "chains/a.yaml=1 chains/b.json=1 more.yaml=more");
    for (name, expected) in [
        ("more.yaml", true),
        ("chains/a.yaml", true),
        ("chains/new.yml", true),
        ("chains/notes", false),
        ("chains/.a.yaml", false),
        ("chains/below/a.yaml", false),
        ("other.yaml", false),
    ] {
        assert_eq!(directory.store.owns(&directory.path(name)), expected, "{name}");
    }
    directory.write("chains/admissionwebhook-n-x.yaml", "");
    for (id, expected) in [
        ("AdmissionChain/a", "chains/AdmissionChain-a.yaml"),
        ("admissionwebhook/n/x", "chains/admissionwebhook-n-x-2.yaml"),
    ] {
        let new_path = directory.store.path_for(&id.parse().unwrap());
        assert_eq!(new_path, Some(directory.path(expected)), "{id}");
        assert!(directory.store.owns(&new_path.unwrap()), "{id}");
    }
    let file = FileStore::new(vec![directory.path("more.yaml")]);
    assert_eq!(file.path_for(&"AdmissionChain/a".parse().unwrap()), None);
}

#[tokio::test]
async fn a_commit_writes_all_changes_or_none() {
    let directory = ReadDirectory::new();
    directory.write("chains/a.yaml", "1");
    directory.write("chains/b.yaml", "1");
    let changes = [
        directory.change("chains/a.yaml", Some("1"), Some("2")),
        directory.change("chains/b.yaml", Some("1"), None),
        directory.change("chains/c.yaml", None, Some("2")),
    ];
    directory.store.commit(&changes).await.unwrap();
    let after = "chains/a.yaml=2 chains/c.yaml=2 more.yaml=more";
    assert_eq!(directory.read().await, after);

    for wrong in [
        directory.change("chains/c.yaml", Some("1"), None),
        directory.change("chains/c.yaml", None, Some("3")),
        directory.change("chains/b.yaml", Some("1"), Some("3")),
    ] {
        let changes = [directory.change("chains/a.yaml", Some("2"), Some("3")), wrong];
        let error = directory.store.commit(&changes).await.unwrap_err();
        assert!(matches!(error, StoreError::ChangedMeanwhile { .. }), "{error}");
        assert_eq!(directory.read().await, after);
    }
}

#[tokio::test]
async fn changes_are_reported_until_they_are_read() {
    let directory = ReadDirectory::new();
    // The first call of `wait_for_change` returns at once, because the store has not been read yet.
    directory.wait_for_change().await;
    assert_eq!(directory.read().await, "more.yaml=more");
    directory.write("chains/a.yaml", "1");
    directory.wait_for_change().await;
    directory.wait_for_change().await;
    assert_eq!(directory.read().await, "chains/a.yaml=1 more.yaml=more");
    // The future of `wait_for_change` is dropped before it returns. The next call still reports the change that
    // happened meanwhile.
    {
        let waiting = directory.store.wait_for_change();
        directory.write("more.yaml", "2");
        drop(waiting);
    }
    directory.wait_for_change().await;
    assert_eq!(directory.read().await, "chains/a.yaml=1 more.yaml=2");

    let waiting = async {
        directory.wait_for_change().await;
        directory.read().await
    };
    let other_writes = async {
        tokio::task::yield_now().await;
        directory.write("more.yaml", "3");
        assert_eq!(directory.read().await, "chains/a.yaml=1 more.yaml=3");
        directory.write("more.yaml", "2");
    };
    let (listing, ()) = tokio::join!(waiting, other_writes);
    assert!(["chains/a.yaml=1 more.yaml=3", "chains/a.yaml=1 more.yaml=2"].contains(&listing.as_str()));
}

#[tokio::test]
async fn a_missing_directory_is_a_mistake_and_not_an_empty_store() {
    let directory = ReadDirectory::new();
    directory.write("chains/a.yaml", "1");
    assert_eq!(directory.read().await, "chains/a.yaml=1 more.yaml=more");
    fs::rename(directory.path("chains"), directory.path("away")).unwrap();
    directory.wait_for_change().await;
    assert!(directory.read().await.contains("No such file or directory"));
    fs::rename(directory.path("away"), directory.path("chains")).unwrap();
    directory.wait_for_change().await;
    assert_eq!(directory.read().await, "chains/a.yaml=1 more.yaml=more");
}

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec: {{ rules: [ {{ \
         operations: [CREATE], kinds: [pod] }} ], stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ] }}\n"
    )
}

async fn read_timed(directory: &ReadDirectory) -> (Duration, usize) {
    let started = tokio::time::Instant::now();
    let files = directory.store.read().await.unwrap();
    (started.elapsed(), files.len())
}

#[tokio::test(start_paused = true)]
async fn a_removal_takes_effect_only_after_a_wait() {
    const SHORT_TIME: Duration = Duration::from_millis(1000);
    let directory = ReadDirectory::new();
    let both = format!("{}---\n{}", chain("a"), chain("b"));
    directory.write("more.yaml", &both);
    directory.write("chains/c.yaml", &chain("c"));
    let (took, files) = read_timed(&directory).await;
    assert!(took < SHORT_TIME && files == 2, "at the first read: {took:?}");
    directory.write("more.yaml", &chain("a"));
    let completed = async {
        tokio::time::sleep(SHORT_TIME).await;
        directory.write("more.yaml", &both);
    };
    let (listing, ()) = tokio::join!(directory.read(), completed);
    assert!(listing.contains(&both), "{listing}");
    // A blank file is a mistake, but another program may still be writing it. Therefore the store waits before it reads
    // a file that is blank, whether the file is new or has been emptied.
    for (path, text) in [("more.yaml", ""), ("chains/new.yaml", "\n")] {
        directory.write(path, text);
        let (took, _) = read_timed(&directory).await;
        assert!(took > SHORT_TIME, "{path}: {took:?}");
        fs::remove_file(directory.path(path)).unwrap();
        directory.write("more.yaml", &both);
        assert!(read_timed(&directory).await.0 < SHORT_TIME);
    }
    type Step = fn(&ReadDirectory);
    let steps: [Step; 2] = [
        |directory| directory.write("more.yaml", &chain("a")),
        |directory| fs::remove_file(directory.path("chains/c.yaml")).unwrap(),
    ];
    for (number, step) in steps.iter().enumerate() {
        step(&directory);
        let (took, _) = read_timed(&directory).await;
        assert!(took > SHORT_TIME, "step {number}: {took:?}");
        let (took, _) = read_timed(&directory).await;
        assert!(took < SHORT_TIME, "step {number}, again: {took:?}");
    }
    // The store accepts each of the following changes without waiting: another program adds a chain, a file gets a
    // mistake, the mistake is corrected, and the store itself removes a chain.
    directory.write("chains/c.yaml", &chain("c"));
    assert!(read_timed(&directory).await.0 < SHORT_TIME);
    directory.write("more.yaml", "kind: [");
    assert!(read_timed(&directory).await.0 < SHORT_TIME);
    directory.write("more.yaml", &chain("a"));
    assert!(read_timed(&directory).await.0 < SHORT_TIME);
    let deleted = directory.change("chains/c.yaml", Some(&chain("c")), None);
    directory.store.commit(&[deleted]).await.unwrap();
    assert!(read_timed(&directory).await.0 < SHORT_TIME);
}

/// The text of a chain that ends with its rules, and has each item of its lists on a separate line. If only a part of
/// this text has been written, the part may already be a valid chain with fewer rules.
const RULES_LAST: &str = "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: a
spec:
  stages:
    - name: s
      plugin:
        source: file:s.wasm
  rules:
    - operations:
        - CREATE
        - UPDATE
      kinds:
        - pod
    - operations:
        - DELETE
      kinds:
        - pod
";

/// A hook whose last line sets the failure policy `Fail`. If this line is cut off, the hook is still valid, but has the
/// failure policy `Ignore`.
const POLICY_LAST: &str = "apiVersion: v4
kind: admissionwebhook
metadata: { namespace: m, name: a }
resourcesRef: { operation: Create, kind: Application }
admissionWebhooks:
  - name: s
    plugin: { source: 'file:s.wasm' }
    failurePolicy: Fail
";

#[tokio::test(start_paused = true)]
async fn a_truncated_file_is_accepted_only_after_a_wait() {
    const SHORT_TIME: Duration = Duration::from_millis(1000);
    /// Returns a comment line, followed by the text up to and including the words `end`. Without the comment, the
    /// result would be the beginning of the old text, and the store would treat the file as truncated for this reason
    /// alone.
    fn cut(text: &str, end: &str) -> String {
        let length = text.find(end).unwrap() + end.len();
        format!("# New.\n{}\n", &text[..length])
    }
    let exception = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionException\nmetadata: { name: e }\nspec: { \
                     owner: o, reason: r, expires: 2099-01-31, stages: [a/s], names: [x] }\n";
    // (text of the file before, text of the file now, whether the store waits before it accepts the new text)
    let table = [
        (RULES_LAST, cut(RULES_LAST, "        - pod"), true),
        (
            RULES_LAST,
            cut(RULES_LAST, "- CREATE\n        - UPDATE\n      kinds:\n        - pod"),
            true,
        ),
        (RULES_LAST, RULES_LAST.replace("        - UPDATE\n", ""), true),
        (POLICY_LAST, cut(POLICY_LAST, "'file:s.wasm' }"), true),
        (RULES_LAST, format!("{RULES_LAST}---\n{exception}"), true),
        // The new text is only a beginning of the old text, so the file may be half-written. The store waits before it
        // accepts the file, even if the text is invalid.
        (RULES_LAST, RULES_LAST[..RULES_LAST.len() - 1].to_owned(), true),
        (RULES_LAST, RULES_LAST[..RULES_LAST.len() - 30].to_owned(), true),
        // Something is added to the old text, or only the module is changed. Nothing is missing, so the store does not
        // wait.
        (RULES_LAST, RULES_LAST.replace("s.wasm", "s_2.wasm"), false),
        (RULES_LAST, format!("{RULES_LAST}---\n{}", chain("b")), false),
        (
            RULES_LAST,
            format!("# New.\n{RULES_LAST}    - operations: [CREATE]\n      kinds: [job]\n"),
            false,
        ),
        (
            POLICY_LAST,
            format!("{POLICY_LAST}  - name: t\n    plugin: {{ source: 'file:t.wasm' }}\n"),
            false,
        ),
    ];
    for (before, now, is_waited_for) in table {
        let directory = ReadDirectory::new();
        directory.write("more.yaml", before);
        directory.read().await;
        directory.write("more.yaml", &now);
        let (took, _) = read_timed(&directory).await;
        assert_eq!(took > SHORT_TIME, is_waited_for, "{took:?}: {now}");
    }
}

/// The file is written in two parts. The first part alone is valid, but the store waits until the second part is
/// written too.
#[tokio::test]
async fn reads_wait_for_a_file_that_is_being_written() {
    const PAUSE: Duration = Duration::from_millis(250);
    let directory = ReadDirectory::new();
    directory.read().await;
    // The first call of `wait_for_change` makes the store track the programs that write files.
    let changed = tokio::time::timeout(4 * PAUSE, directory.store.wait_for_change()).await;
    assert!(changed.is_err(), "nothing has changed");
    let mut file = fs::File::create(directory.path("chains/a.yaml")).unwrap();
    file.write_all(b"1").unwrap();
    tokio::time::sleep(PAUSE).await;
    let completed = async move {
        tokio::time::sleep(PAUSE).await;
        file.write_all(b"2").unwrap();
        drop(file);
    };
    let (listing, ()) = tokio::join!(directory.read(), completed);
    assert_eq!(listing, "chains/a.yaml=12 more.yaml=more");
}

#[tokio::test]
async fn a_file_that_is_still_being_written_after_the_limit_is_reported() {
    const PAUSE: Duration = Duration::from_millis(250);
    let mut directory = ReadDirectory::new();
    directory.store.writer_timeout = PAUSE;
    directory.store.config.hold = Duration::from_secs(3600);
    directory.read().await;
    let changed = tokio::time::timeout(4 * PAUSE, directory.store.wait_for_change()).await;
    assert!(changed.is_err(), "nothing has changed");
    let mut file = fs::File::create(directory.path("chains/a.yaml")).unwrap();
    file.write_all(b"1").unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let listing = directory.read().await;
            // The store may not notice at once that the file is still being written, so the first reads can succeed.
            // The test reads until the store reports the mistake.
            if listing.contains("a.yaml: the file is still being written") {
                break;
            }
        }
    });
    refused.await.unwrap();
    file.write_all(b"2").unwrap();
    drop(file);
    directory.wait_for_change().await;
    assert_eq!(directory.read().await, "chains/a.yaml=12 more.yaml=more");
}

/// The store waits while a program writes a definition file. It does not wait for other files in the directory, such as
/// logs, which it recognises by their extension.
#[tokio::test]
async fn reads_do_not_wait_for_a_log_file_in_the_directory() {
    const PAUSE: Duration = Duration::from_millis(5);
    let directory = ReadDirectory::new();
    directory.read().await;
    let mut log = fs::File::create(directory.path("chains/app.log")).unwrap();
    let logging = async {
        loop {
            log.write_all(b"a line\n").unwrap();
            tokio::time::sleep(PAUSE).await;
        }
    };
    let reading = async {
        let changed = tokio::time::timeout(100 * PAUSE, directory.store.wait_for_change()).await;
        assert!(changed.is_err(), "nothing has changed");
        let started = tokio::time::Instant::now();
        directory.write("chains/a.yaml", "1");
        directory.wait_for_change().await;
        let listing = directory.read().await;
        (listing, started.elapsed())
    };
    let (listing, took) = tokio::select! {
        read = reading => read,
        () = logging => unreachable!(),
    };
    assert_eq!(listing, "chains/a.yaml=1 more.yaml=more");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn drafts_of_a_killed_commit_are_removed() {
    let test_directory = ReadDirectory::new();
    let names = [
        ".admittance-Ab3dEf",
        ".admittance-locked",
        ".admittance-longer7",
        ".admittance-12345",
        ".admittance-a.yaml",
        ".other-Ab3dEf",
    ];
    for name in names {
        test_directory.write(&format!("chains/{name}"), "half");
    }
    fs::create_dir(test_directory.path("chains/.admittance-Folder")).unwrap();
    std::os::unix::fs::symlink(
        test_directory.path("more.yaml"),
        test_directory.path("chains/.admittance-Linked"),
    )
    .unwrap();
    test_directory.write(".admittance-Beside", "half");
    let locked = fs::File::open(test_directory.path("chains/.admittance-locked")).unwrap();
    locked.lock().unwrap();
    test_directory.read().await;
    let remaining_names = |directory: &str| {
        let entries = fs::read_dir(test_directory.path(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        remaining_names("chains"),
        [
            ".admittance-12345",
            ".admittance-Folder",
            ".admittance-Linked",
            ".admittance-a.yaml",
            ".admittance-locked",
            ".admittance-longer7",
            ".other-Ab3dEf",
        ]
    );
    assert_eq!(remaining_names(""), ["chains", "more.yaml"]);
    test_directory.write("chains/.admittance-Ab3dEf", "half");
    test_directory.read().await;
    assert_eq!(remaining_names("chains").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn the_first_read_is_compared_with_the_last_live_definitions() {
    const SHORT_TIME: Duration = Duration::from_millis(1000);
    let both = format!("{}---\n{}", chain("a"), chain("b"));
    // (live definitions before the start, text of the file at the start, whether the store waits before it accepts the
    // text)
    for (before, now, is_waited_for) in [
        (Some(&both), chain("a"), true),
        (Some(&both), both.clone(), false),
        (Some(&chain("a")), both.clone(), false),
        (None, chain("a"), false),
    ] {
        let directory = ReadDirectory::new();
        directory.write("more.yaml", &now);
        directory.write("chains/.admittance-Ab3dEf", "half");
        if let Some(before) = before {
            let before = DefinitionFile::file(directory.path("more.yaml"), before);
            directory.store.set_last_live(vec![before]).await;
        }
        let (took, files) = read_timed(&directory).await;
        assert_eq!((took > SHORT_TIME, files), (is_waited_for, 1), "{took:?}: {now}");
        let has_draft = directory.path("chains/.admittance-Ab3dEf").exists();
        assert!(!has_draft, "the first read removes what a killed commit left");
    }
}

#[tokio::test]
async fn a_directory_that_becomes_empty_is_warned_about() {
    let directory = ReadDirectory::new();
    for (name, expected) in [("chains/a.yaml", 0), ("chains/a.ymal", 1), ("chains/b.json", 0)] {
        directory.write(name, "a");
        directory.read().await;
        assert_eq!(
            directory.store.empty_directory_warnings.lock().await.len(),
            expected,
            "{name}"
        );
        fs::remove_file(directory.path(name)).unwrap();
    }
}
