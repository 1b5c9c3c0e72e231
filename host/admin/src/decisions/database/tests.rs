use std::{os::unix::fs::PermissionsExt, time::SystemTime};

use admittance::DecisionVerdict;
use serde_json::json;

use super::*;

fn detail(id: u64, namespace: &str, verdict: &str, stage: &str) -> DecisionDetail {
    let record = json!({
        "id": id, "at": Moment(SystemTime::UNIX_EPOCH + Duration::from_micros(id)), "uid": format!("u{}", id % 5),
        "revision": 1, "user": "alice", "operation": "CREATE", "kind": "v1/Pod", "resource": "v1/pods",
        "namespace": namespace, "name": "web", "verdict": verdict, "microseconds": 10,
        "stages": [
            {"chain": "pods", "phase": "Mutating", "stage": stage, "round": 1, "mode": "Enforce", "result": "allow",
             "startMicroseconds": 0, "microseconds": 10},
            {"chain": "pods", "phase": "Mutating", "stage": "never", "round": 1, "mode": "Enforce",
             "result": "skipped", "startMicroseconds": 0, "microseconds": 0},
        ],
    });
    DecisionDetail::from(serde_json::from_value::<DecisionRecord>(record).unwrap())
}

fn now_micros() -> u64 {
    Moment::now().as_micros()
}

async fn open_database(folder: &tempfile::TempDir, size_limit: u64) -> DecisionDatabase {
    let config = SqliteConfig {
        file: folder.path().join("decisions.db"),
        keep: Duration::from_secs(3600),
        size_limit,
    };
    DecisionDatabase::open(config).await.unwrap()
}

async fn list_ids(database: &DecisionDatabase, filter: &DecisionFilter) -> Vec<u64> {
    let (records, _) = database.list(filter, None, 1000).await.unwrap();
    records.iter().map(|record| record.id).collect()
}

#[tokio::test]
async fn lists_of_decisions_are_filtered_and_continue_on_further_pages() {
    let folder = tempfile::tempdir().unwrap();
    let database = open_database(&folder, 1 << 30).await;
    let mode = folder
        .path()
        .join("decisions.db")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let now = now_micros();
    let batch = [
        detail(now, "shop", "allowed", "images"),
        detail(now + 1, "shop", "denied", "images"),
        detail(now + 2, "bank", "changed", "sidecar"),
    ];
    database.insert(&batch).await.unwrap();
    database.insert(&batch).await.unwrap();
    let filter = |change: fn(&mut DecisionFilter)| {
        let mut filter = DecisionFilter::default();
        change(&mut filter);
        filter
    };
    for (filter, expected) in [
        (filter(|_| {}), vec![2, 1, 0]),
        (filter(|filter| filter.chain = Some("pods".to_owned())), vec![2, 1, 0]),
        (filter(|filter| filter.chain = Some("other".to_owned())), vec![]),
        (filter(|filter| filter.stage = Some("images".to_owned())), vec![1, 0]),
        (filter(|filter| filter.stage = Some("never".to_owned())), vec![]),
        (
            filter(|filter| {
                filter.chain = Some("pods".to_owned());
                filter.stage = Some("sidecar".to_owned());
                filter.namespace = Some("bank".to_owned());
            }),
            vec![2],
        ),
        (filter(|filter| filter.namespace = Some("shop".to_owned())), vec![1, 0]),
        (filter(|filter| filter.user = Some("bob".to_owned())), vec![]),
        (filter(|filter| filter.text = Some("ban".to_owned())), vec![2]),
        (filter(|filter| filter.text = Some("100%".to_owned())), vec![]),
        (
            filter(|filter| filter.verdict = vec![DecisionVerdict::Denied, DecisionVerdict::Changed]),
            vec![2, 1],
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|offset| now + offset).collect();
        assert_eq!(list_ids(&database, &filter).await, expected, "{filter:?}");
    }
    let since = DecisionFilter::default();
    let (first, has_more) = database.list(&since, None, 2).await.unwrap();
    assert_eq!((first[1].id, has_more), (now + 1, true));
    let (second, has_more) = database.list(&since, Some(now + 1), 2).await.unwrap();
    assert_eq!((second[0].id, second.len(), has_more), (now, 1, false));
    assert!(database.list(&since, Some(now + 1), 0).await.unwrap().1);
    let details = database.get(&format!("u{}", now % 5), None, 20).await.unwrap().0;
    assert_eq!(details, [batch[0].clone()]);
    assert!(database.get("none", None, 20).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn decisions_are_removed_when_they_are_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let database = open_database(&folder, 1 << 30).await;
    let now = now_micros();
    let old = now - 2 * 3600 * 1_000_000;
    database
        .insert(&[
            detail(old, "shop", "denied", "images"),
            detail(now, "shop", "denied", "images"),
        ])
        .await
        .unwrap();
    assert_eq!(list_ids(&database, &DecisionFilter::default()).await, [now]);
    let passage_count: i64 = query_scalar("SELECT count(*) FROM admittance_passages WHERE id < ?")
        .bind(sql_integer(now))
        .fetch_one(&database.0.pool)
        .await
        .unwrap();
    assert_eq!(passage_count, 0);
}

#[tokio::test]
async fn the_oldest_decisions_of_a_too_large_database_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 2 << 20;
    let database = open_database(&folder, limit).await;
    let now = now_micros();
    for batch in 0..40 {
        let first = now + batch * 500;
        let batch: Vec<_> = (first..first + 500)
            .map(|id| detail(id, "shop", "allowed", "images"))
            .collect();
        database.insert(&batch).await.unwrap();
    }
    assert!(database.size().await.unwrap() < limit + limit / 4);
    let remaining_ids = list_ids(&database, &DecisionFilter::default()).await;
    assert_eq!(remaining_ids.first(), Some(&(now + 40 * 500 - 1)));
}

#[tokio::test]
async fn a_decision_database_must_not_be_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let config = SqliteConfig {
        file: folder.path().to_owned(),
        keep: SqliteConfig::DEFAULT_KEEP,
        size_limit: SqliteConfig::DEFAULT_SIZE_LIMIT,
    };
    let error = DecisionDatabase::open(config).await.unwrap_err().to_string();
    assert!(error.contains(&folder.path().display().to_string()), "{error}");
}
