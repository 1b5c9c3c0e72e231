//! Keeps decisions in SQLite.

use std::{sync::Arc, time::Duration};

use admittance::{
    DecisionDetail, DecisionFilter, DecisionLog, DecisionRecord, Moment, RecordedRequest, Redacted,
    admission::async_trait,
};
use admittance_watch::file;
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::{
    QueryBuilder, SqlSafeStr, Sqlite, SqlitePool,
    migrate::{Migration, MigrationType, Migrator},
    query, query_as, query_scalar,
    sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    config::SqliteConfig,
    sinks::{DecisionSink, SinkError},
};

const MIGRATIONS_TABLE: &str = "admittance_decision_migrations";

/// The maximum number of connections. One writes, the others read.
const MAX_CONNECTIONS: u32 = 4;

const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// When the database is too large, one in this many decisions is deleted.
const PRUNE_DIVISOR: i64 = 10;

/// The maximum number of values that are bound to one SQL statement. SQLite allows 32,766.
const MAX_VALUES: usize = 30_000;

#[derive(Clone, Debug)]
pub struct DecisionDatabase(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: SqlitePool,
    config: SqliteConfig,
    last_prune: Mutex<Option<Instant>>,
}

/// The content of the column `objects`, in JSON: the request, and the object that resulted from it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredObjects {
    review: Option<RecordedRequest>,
    result: Option<Redacted>,
}

impl DecisionDatabase {
    pub(super) async fn open(config: SqliteConfig) -> Result<Self, SinkError> {
        // The file is created here, because only its owner may read it. Anybody could read a file that SQLite creates.
        file::open_for_appending(&config.file).map_err(|source| SinkError::File {
            path: config.file.clone(),
            source,
        })?;
        let options = SqliteConnectOptions::new()
            .filename(&config.file)
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            // With a write-ahead log, queries see a consistent state while decisions are written.
            .journal_mode(SqliteJournalMode::Wal)
            // With this setting, a crash of the machine may lose the last decisions, but the database stays consistent.
            .synchronous(SqliteSynchronous::Normal);
        let pool_options = SqlitePoolOptions::new().max_connections(MAX_CONNECTIONS);
        let pool = pool_options.connect_with(options).await?;
        let first = Migration::new(
            1,
            "decisions".into(),
            MigrationType::Simple,
            include_str!("../../migrations/sqlite/0001_decisions.sql").into_sql_str(),
            false,
        );
        let mut migrator = Migrator::with_migrations(vec![first]);
        migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
        migrator.run(&pool).await?;
        Ok(Self(Arc::new(Inner {
            pool,
            config,
            last_prune: Mutex::default(),
        })))
    }

    /// Inserts the decisions that the database does not contain yet. At intervals, also deletes old decisions.
    pub(super) async fn insert(&self, batch: &[DecisionDetail]) -> Result<(), SinkError> {
        let mut change = self.0.pool.begin().await?;
        let mut rows = Vec::with_capacity(batch.len());
        let mut passages = Vec::new();
        for detail in batch {
            let objects = match (&detail.review, &detail.result) {
                (None, None) => None,
                (review, result) => Some(serde_json::to_string(&StoredObjects {
                    review: review.clone(),
                    result: result.clone(),
                })?),
            };
            rows.push((&detail.decision, serde_json::to_string(&detail.decision)?, objects));
            passages.extend(passages_of(&detail.decision));
        }
        for rows in rows.chunks(MAX_VALUES / 7) {
            let mut insert = QueryBuilder::<Sqlite>::new(
                "INSERT OR IGNORE INTO admittance_decisions (id, uid, namespace, user_name, verdict, record, objects) ",
            );
            insert.push_values(rows, |mut row, (decision, record, objects)| {
                row.push_bind(sql_integer(decision.id))
                    .push_bind(&decision.uid)
                    .push_bind(decision.namespace.as_deref().unwrap_or_default())
                    .push_bind(&decision.user)
                    .push_bind(decision.verdict.as_str())
                    .push_bind(record)
                    .push_bind(objects);
            });
            insert.build().execute(&mut *change).await?;
        }
        for passages in passages.chunks(MAX_VALUES / 3) {
            let mut insert =
                QueryBuilder::<Sqlite>::new("INSERT OR IGNORE INTO admittance_passages (chain, stage, id) ");
            insert.push_values(passages, |mut row, (chain, stage, id)| {
                row.push_bind(*chain).push_bind(*stage).push_bind(sql_integer(*id));
            });
            insert.build().execute(&mut *change).await?;
        }
        change.commit().await?;
        self.prune().await
    }

    /// Returns up to `limit` of the newest decisions with ids smaller than `before`, and whether there are more.
    pub(super) async fn list(
        &self,
        filter: &DecisionFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<DecisionRecord>, bool), SinkError> {
        let is_passage = filter.chain.is_some() || filter.stage.is_some();
        let mut select = QueryBuilder::<Sqlite>::new("SELECT d.record FROM ");
        if is_passage {
            // `CROSS JOIN` makes SQLite read the table `admittance_passages` first. This table lists the ids of the
            // decisions in order, for each chain and stage. SQLite then reads only these decisions from
            // `admittance_decisions`.
            select.push("admittance_passages p CROSS JOIN admittance_decisions d ON d.id = p.id WHERE p.chain = ");
            select.push_bind(filter.chain.as_deref().unwrap_or_default());
            select.push(" AND p.stage = ");
            select.push_bind(filter.stage.as_deref().unwrap_or_default());
            select.push(" AND p.id < ");
        } else {
            select.push("admittance_decisions d WHERE d.id < ");
        }
        select.push_bind(before.map_or(i64::MAX, sql_integer));
        let id = if is_passage { "p.id" } else { "d.id" };
        if let Some(since) = filter.since {
            select.push(format_args!(" AND {id} >= "));
            select.push_bind(sql_integer(since.as_micros()));
        }
        for (column, value) in [("namespace", &filter.namespace), ("user_name", &filter.user)] {
            if let Some(value) = value {
                select.push(format_args!(" AND d.{column} = "));
                select.push_bind(value);
            }
        }
        if let Some(text) = &filter.text {
            let parts = ["kind", "namespace", "name", "uid", "user", "message"]
                .map(|part| format!("instr(json_extract(d.record, '$.{part}'), "));
            select.push(" AND (");
            for (number, part) in parts.into_iter().enumerate() {
                select.push(if number > 0 { " OR " } else { "" }).push(part);
                select.push_bind(text).push(") > 0");
            }
            select.push(")");
        }
        if !filter.verdict.is_empty() {
            select.push(" AND d.verdict IN (");
            let mut verdicts = select.separated(", ");
            for verdict in &filter.verdict {
                verdicts.push_bind(verdict.as_str());
            }
            select.push(")");
        }
        select.push(format_args!(" ORDER BY {id} DESC LIMIT "));
        // One decision more than the limit is requested. If it is found, the reply says that there are more decisions.
        select.push_bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
        let mut records = select.build_query_scalar::<String>().fetch(&self.0.pool);
        let (mut decisions, mut bytes) = (Vec::new(), 0);
        while let Some(record) = records.try_next().await? {
            bytes += record.len();
            if decisions.len() == limit || (bytes > DecisionLog::PAGE_BYTES && !decisions.is_empty()) {
                return Ok((decisions, true));
            }
            decisions.push(serde_json::from_str(&record)?);
        }
        Ok((decisions, false))
    }

    /// Returns the newest decisions with this uid and ids smaller than `before`, and the number of older ones.
    pub(super) async fn get(
        &self,
        uid: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<DecisionDetail>, usize), SinkError> {
        let before = before.map_or(i64::MAX, sql_integer);
        let select = query_scalar("SELECT count(*) FROM admittance_decisions WHERE uid = ? AND id < ?");
        let count: i64 = select.bind(uid).bind(before).fetch_one(&self.0.pool).await?;
        let mut rows = query_as::<_, (String, Option<String>)>(
            "SELECT record, objects FROM admittance_decisions WHERE uid = ? AND id < ? ORDER BY id DESC LIMIT ?",
        )
        .bind(uid)
        .bind(before)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch(&self.0.pool);
        let (mut details, mut bytes) = (Vec::new(), 0);
        while let Some((record, objects)) = rows.try_next().await? {
            bytes += record.len() + objects.as_ref().map_or(0, String::len);
            if bytes > DecisionLog::PAGE_BYTES && !details.is_empty() {
                break;
            }
            let record: DecisionRecord = serde_json::from_str(&record)?;
            let mut detail = DecisionDetail::from(record);
            if let Some(objects) = objects {
                let StoredObjects { review, result } = serde_json::from_str(&objects)?;
                detail.review = review;
                detail.result = result;
            }
            details.push(detail);
        }
        details.reverse();
        let count = usize::try_from(count).unwrap_or_default();
        let older = count.saturating_sub(details.len());
        Ok((details, older))
    }

    async fn prune(&self) -> Result<(), SinkError> {
        let Inner {
            pool,
            config,
            last_prune: pruned,
        } = &*self.0;
        let mut pruned = pruned.lock().await;
        if pruned.is_none_or(|pruned| pruned.elapsed() >= PRUNE_INTERVAL) {
            if let Some(oldest) = Moment::now().0.checked_sub(config.keep) {
                self.remove_before(sql_integer(Moment(oldest).as_micros())).await?;
            }
            *pruned = Some(Instant::now());
        }
        while self.size().await? > config.size_limit {
            let count: i64 = query_scalar("SELECT count(*) FROM admittance_decisions")
                .fetch_one(pool)
                .await?;
            if count == 0 {
                break;
            }
            let first: Option<i64> = query_scalar("SELECT id FROM admittance_decisions ORDER BY id LIMIT 1 OFFSET ?")
                .bind((count / PRUNE_DIVISOR).max(1))
                .fetch_optional(pool)
                .await?;
            self.remove_before(first.unwrap_or(i64::MAX)).await?;
        }
        Ok(())
    }

    async fn remove_before(&self, id: i64) -> Result<(), SinkError> {
        let mut change = self.0.pool.begin().await?;
        for delete in [
            "DELETE FROM admittance_decisions WHERE id < ?",
            "DELETE FROM admittance_passages WHERE id < ?",
        ] {
            query(delete).bind(id).execute(&mut *change).await?;
        }
        change.commit().await?;
        query("PRAGMA incremental_vacuum").execute(&self.0.pool).await?;
        Ok(())
    }

    /// Returns the size of the database in bytes, without the pages that are free.
    async fn size(&self) -> Result<u64, SinkError> {
        let size: i64 = query_scalar(
            "SELECT (page_count - freelist_count) * page_size \
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        )
        .fetch_one(&self.0.pool)
        .await?;
        Ok(u64::try_from(size).unwrap_or_default())
    }
}

#[async_trait]
impl DecisionSink for DecisionDatabase {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn write(&mut self, batch: &[DecisionDetail]) -> Result<(), SinkError> {
        self.insert(batch).await
    }
}

/// Returns the rows of the table `admittance_passages` by which a filter finds this decision: (chain, stage, id of the
/// decision). A filter may name only a chain, or only a stage. For such filters, there are also rows whose stage or
/// chain is empty.
fn passages_of(decision: &DecisionRecord) -> Vec<(&str, &str, u64)> {
    let mut passages = Vec::new();
    for row in &decision.stages {
        passages.push((row.chain.as_str(), "", decision.id));
        if row.was_called() {
            passages.push((row.chain.as_str(), row.stage.as_str(), decision.id));
            passages.push(("", row.stage.as_str(), decision.id));
        }
    }
    passages.sort_unstable();
    passages.dedup();
    passages
}

fn sql_integer(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
