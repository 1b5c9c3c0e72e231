use super::*;
use crate::Moment;

/// Creates a revision with one plugin and one definition file, which contains this text.
pub(super) fn entry(number: u64, text: &str) -> HistoryEntry {
    HistoryEntry {
        detail: RevisionDetail {
            revision: Revision {
                hash: None,
                number,
                at: Moment(std::time::SystemTime::UNIX_EPOCH),
                origin: Origin::Files,
                by: None,
                chains: 1,
                modules: vec![RevisionModule {
                    stage: "Mutating:a/b".to_owned(),
                    candidate: false,
                    source: "file:b.wasm".to_owned(),
                    digest: Digest::of_bytes("b").to_string(),
                    plugin: "b".to_owned(),
                    version: "1.0.0".to_owned(),
                }],
            },
            files: vec![RevisionFile {
                path: "chains/a.yaml".into(),
                text: text.to_owned(),
            }],
        },
        instead_of: None,
        pending: Vec::new(),
        changed: OnceLock::new(),
    }
}

#[tokio::test]
async fn the_history_removes_the_oldest_revisions() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::open(folder.path(), 2).unwrap();
    assert_eq!(history.next_number(), 1);
    for number in 1..=4 {
        history.add_and_write(entry(number, "text").into()).await.unwrap();
    }
    assert_eq!(
        find(&history.entries(), 2).unwrap_err().to_string(),
        "there is no revision 2: 3 to 4 are kept"
    );
    drop(history);
    let history = History::open(folder.path(), 2).unwrap();
    let numbers: Vec<_> = history.entries().iter().map(|entry| entry.revision().number).collect();
    assert_eq!((numbers.as_slice(), history.next_number()), ([3, 4].as_slice(), 5));
}

#[tokio::test]
async fn a_revision_that_cannot_be_written_stays_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let mut history = History::open(&path, 2).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(history.add_and_write(entry(1, "text").into()).await.is_err());
    assert!(history.problem.is_some());
    assert_eq!(history.last(), None);
    history.add(entry(1, "text").into());
    assert!(history.write().await.is_err());
    assert_eq!(history.last().unwrap().revision().number, 1);
    std::fs::create_dir(&path).unwrap();
    history.add_and_write(entry(2, "text").into()).await.unwrap();
    assert_eq!(history.problem, None);
}

#[test]
fn revisions_with_the_same_definitions_and_modules_are_alike() {
    let same = [entry(1, "a"), entry(2, "a")];
    assert!(same[0].is_like(&same[1]));
    assert!(!entry(1, "a").is_like(&entry(1, "b")));
    let mut other = entry(1, "a");
    other.detail.revision.modules[0].digest = "sha256:00".to_owned();
    assert!(!entry(1, "a").is_like(&other));
}
