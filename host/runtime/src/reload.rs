//! Tables of what the definitions say now. Each is made beside the one that serves, and nothing is held meanwhile: a
//! rollback, and every other change, goes live while a plugin is fetched, compiled or configured.

use std::{sync::Arc, time::Duration};

use admittance_watch::Watch;

use crate::{
    Error, Host, Origin, Table,
    assembly::{Modules, Servers},
    host::entry_of,
    source::Purpose,
};

/// A table may be made for so long before a newer change ends that: changes that come quickly one after another do
/// not keep all of them from going live.
const MAKING: Duration = Duration::from_secs(1);

/// What became of making a table.
pub(crate) enum Reload {
    /// It is live, or says what is live.
    Live(Arc<Table>),
    /// As far as it could be made without asking servers, it is live.
    LacksModules,
    /// Before it was live, something else went live, or the files changed again: what was being prepared was dropped.
    Superseded,
}

impl Host {
    /// Read the definitions and the modules that they name again, and go live with what they say. Requests
    /// in flight end on the table that they began with. Nothing happens when they say what is live. A file whose
    /// modules cannot be fetched stays as it was before, and [`status`](Self::status) names it.
    ///
    /// # Errors
    ///
    /// As [`HostBuilder::build`](crate::HostBuilder::build); the table stays as it was.
    pub async fn reload(&self) -> Result<Arc<Table>, Arc<Error>> {
        loop {
            if let Reload::Live(table) = self.reload_with(Servers::all(), None).await? {
                return Ok(table);
            }
        }
    }

    /// As [`reload`](Self::reload), and ask these servers. It ends early when the files of this watch change again.
    pub(crate) async fn reload_with(
        &self,
        servers: Servers,
        watch: Option<&mut Watch>,
    ) -> Result<Reload, Arc<Error>> {
        let _building = self.building();
        let mut rollbacks = self.0.rollbacks.subscribe();
        let (source, base, read) = {
            let mut state = self.0.state.lock().await;
            let read = state.source.read().await;
            let said = state.source.said();
            let last = state.history.last();
            let is_held = last.is_some_and(|last| last.instead_of.as_deref() == Some(said.as_str()));
            if read.is_ok() && is_held {
                self.settled(&state.history, None);
                return Ok(Reload::Live(self.table()));
            }
            (state.source.clone(), self.table().revision(), read)
        };
        let seen = source.seen.clone();
        let (origin, asks_all) = match &servers {
            Servers::All(again) if !again.is_empty() => (Origin::Refreshed, true),
            Servers::All(_) => (Origin::Files, true),
            Servers::Of(_) => (Origin::Files, false),
        };
        let make = async {
            let made = source
                .make(read?, Modules::Current(servers), Purpose::Follow)
                .await?;
            Ok::<_, Error>((made, self.place(&source).await?))
        };
        // Dropped, it ends what is fetched, what compiles and what configures plugins.
        let made = match watch {
            None => make.await,
            Some(watch) => {
                watch.expect(seen);
                tokio::select! {
                    made = make => made,
                    () = self.changed_again(watch) => return Ok(Reload::Superseded),
                    _ = rollbacks.changed() => return Ok(Reload::Superseded),
                }
            }
        };
        let mut state = self.0.state.lock().await;
        if self.table().revision() != base {
            return Ok(Reload::Superseded);
        }
        let (made, place) = match made {
            Ok(made) => made,
            // With the modules that servers have, it may go live.
            Err(Error::Stages(errors))
                if !asks_all && errors.iter().any(|error| error.cause.is_not_fetched()) =>
            {
                return Ok(Reload::LacksModules);
            }
            Err(error) => {
                let error = Arc::new(error);
                self.failed(error.clone());
                return Err(error);
            }
        };
        let lacks_modules = made.lacks_modules;
        let problem = self.problem_of(&made);
        let entry = Arc::new(entry_of(&made, state.history.next_number(), origin, None));
        let table = if state.history.says(&entry) {
            self.settled(&state.history, problem);
            self.table()
        } else {
            self.go_live(&mut state, made, entry, place, problem).await
        };
        Ok(match lacks_modules {
            true => Reload::LacksModules,
            false => Reload::Live(table),
        })
    }

    /// Wait until definitions, or the modules that they name, change again.
    async fn changed_again(&self, watch: &mut Watch) {
        tokio::time::sleep(MAKING).await;
        tokio::select! {
            _ = watch.changed() => {}
            () = self.0.stores.changed() => {}
        }
    }
}
