//! Builds tables from the current definitions. This runs in the background without locks, so that rollbacks and other
//! changes can go live while a plugin is fetched, compiled or configured.

use std::{sync::Arc, time::Duration};

use admittance_watch::Watch;

use crate::{
    Error, Host, Origin, Table,
    changes::start::entry_of,
    live::assembly::{FetchScope, Modules},
    live::prepared::PreparedTable,
    live::source::Purpose,
};

/// A build runs for at least this long before a newer change can cancel it. Otherwise, no build would ever finish if
/// the definitions changed all the time.
const MIN_BUILD_TIME: Duration = Duration::from_secs(1);

pub(crate) enum Reload {
    /// This table is live now.
    Live(Arc<Table>),
    /// The new table is not complete, because some of its modules are not in the store of modules, and this build may
    /// not request them from servers. The definitions that do not need these modules may be live already.
    LacksModules,
    /// Another table went live during the build, or the definitions changed again. So the new table was discarded.
    Superseded,
}

impl Host {
    /// Reads the definitions and their modules again, and goes live with them unless the live table already matches.
    /// Requests in flight finish with the table with which they started. If the modules of a file cannot be fetched,
    /// its previous version stays live, and [`status`](Self::status) reports the file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`HostBuilder::build`](crate::HostBuilder::build); the table is unchanged.
    pub async fn reload(&self) -> Result<Arc<Table>, Arc<Error>> {
        loop {
            if let Reload::Live(table) = self.reload_with(FetchScope::all(), None).await? {
                return Ok(table);
            }
        }
    }

    /// [Reloads](Self::reload), but fetches only these modules from servers. Ends early if `watch` reports a change.
    pub(crate) async fn reload_with(
        &self,
        servers: FetchScope,
        watch: Option<&mut Watch>,
    ) -> Result<Reload, Arc<Error>> {
        let mut rollbacks = self.0.rollbacks.subscribe();
        let (before, base) = {
            let state = self.0.state.lock().await;
            (state.source.clone(), self.table().revision())
        };
        // Reading may wait for a slow disk, or files that another program writes. So `state` is not locked meanwhile.
        let contents = self.0.stores.read().await;
        let _building = self.begin_build();
        let input = before.prepare_input(contents).await.map_err(Arc::new)?;
        let (source, reading) = {
            let mut state = self.0.state.lock().await;
            if state.source.version != before.version || self.table().revision() != base {
                return Ok(Reload::Superseded);
            }
            let reading = state.source.record(input);
            let inputs = state.source.input_digest();
            let newest = state.newest_entry();
            let is_held = newest.is_some_and(|newest| newest.instead_of.as_deref() == Some(inputs.as_str()));
            if reading.is_ok() && is_held {
                self.update_live_status(&state, state.replaced_problem.clone());
                return Ok(Reload::Live(self.table()));
            }
            (state.source.clone(), reading)
        };
        let (origin, is_with_servers) = match &servers {
            FetchScope::All(again) if !again.is_empty() => (Origin::Refreshed, true),
            FetchScope::All(_) => (Origin::Files, true),
            FetchScope::Of(_) => (Origin::Files, false),
        };
        let make = async {
            let built_table = source
                .build(reading?, Modules::Current(servers), Purpose::Follow)
                .await?;
            Ok::<_, Error>((built_table, self.wait_for_slot().await?))
        };
        let build_result = match watch {
            None => make.await,
            Some(watch) => {
                watch.set_fingerprint(source.module_fingerprint.clone());
                tokio::select! {
                    built = make => built,
                    () = self.wait_for_newer_change(watch) => return Ok(Reload::Superseded),
                    _ = rollbacks.changed() => return Ok(Reload::Superseded),
                }
            }
        };
        let mut state = self.0.state.lock().await;
        if self.table().revision() != base {
            return Ok(Reload::Superseded);
        }
        let (built_table, slot) = match build_result {
            Ok(built) => built,
            Err(Error::Stages(errors))
                if !is_with_servers && errors.iter().any(|error| error.cause.is_not_fetched()) =>
            {
                return Ok(Reload::LacksModules);
            }
            Err(error) => {
                let error = Arc::new(error);
                self.record_failure(error.clone());
                return Err(error);
            }
        };
        let lacks_modules = built_table.lacks_modules;
        let problem = self.problem_of_table(&built_table);
        let entry = Arc::new(entry_of(&built_table, state.history.next_number(), origin, None));
        let table = if state.is_newest(&entry) {
            self.update_live_status(&state, problem);
            self.table()
        } else {
            let table = PreparedTable {
                built_table,
                entry,
                slot,
            };
            self.go_live_or_wait(&mut state, table, problem).await
        };
        Ok(if lacks_modules {
            Reload::LacksModules
        } else {
            Reload::Live(table)
        })
    }

    async fn wait_for_newer_change(&self, watch: &mut Watch) {
        tokio::time::sleep(MIN_BUILD_TIME).await;
        tokio::select! {
            _ = watch.changed() => {}
            () = self.0.stores.wait_for_change() => {}
        }
    }
}
