//! Tables of what the definitions say now. Each is made beside the one that serves, and nothing is held meanwhile: a
//! rollback, and every other change, goes live while a plugin compiles or is configured.

use std::{collections::HashSet, sync::Arc, time::Duration};

use admittance_catalog::ModuleReference;
use admittance_watch::Watch;

use crate::{Error, Host, Origin, Table, assembly::Modules, host::entry_of};

/// A table may be made for so long before a newer change ends that: changes that come quickly one after another do
/// not keep all of them from going live.
const MAKING: Duration = Duration::from_secs(1);

impl Host {
    /// Read the definitions and the modules that they name again, and go live with what they say. Requests
    /// in flight end on the table that they began with. Nothing happens when they say what is live.
    ///
    /// # Errors
    ///
    /// As [`HostBuilder::build`](crate::HostBuilder::build); the table stays as it was.
    pub async fn reload(&self) -> Result<Arc<Table>, Arc<Error>> {
        loop {
            if let Some(table) = self.reload_asking_again(&HashSet::new(), None).await? {
                return Ok(table);
            }
        }
    }

    /// As [`reload`](Self::reload), and ask the servers of these modules again. None: before it was live, something
    /// else went live, or the files of this watch changed again; what was being prepared is given up.
    pub(crate) async fn reload_asking_again(
        &self,
        again: &HashSet<ModuleReference>,
        watch: Option<&mut Watch>,
    ) -> Result<Option<Arc<Table>>, Arc<Error>> {
        let _building = self.building();
        let mut rollbacks = self.0.rollbacks.subscribe();
        let (source, base, read) = {
            let mut workshop = self.0.workshop.lock().await;
            let read = workshop.source.read().await;
            let said = workshop.source.said();
            let last = workshop.history.last();
            let is_held = last.is_some_and(|last| last.instead_of.as_deref() == Some(said.as_str()));
            if read.is_ok() && is_held {
                self.settled(&workshop.history, &[]);
                return Ok(Some(self.table()));
            }
            (workshop.source.clone(), self.table().revision(), read)
        };
        let seen = source.seen.clone();
        let make = async {
            let modules = Modules::Current(Arc::new(again.clone()));
            let made = source.make(read?, &[], modules).await?;
            Ok::<_, Error>((made, self.place(&source).await?))
        };
        // Dropped, it ends what compiles and what configures plugins.
        let made = match watch {
            None => make.await,
            Some(watch) => {
                watch.expect(seen);
                tokio::select! {
                    made = make => made,
                    () = self.changed_again(watch) => return Ok(None),
                    _ = rollbacks.changed() => return Ok(None),
                }
            }
        };
        let mut workshop = self.0.workshop.lock().await;
        if self.table().revision() != base {
            return Ok(None);
        }
        let (made, place) = match made {
            Ok(made) => made,
            Err(error) => {
                let error = Arc::new(error);
                self.failed(error.clone());
                return Err(error);
            }
        };
        let origin = if again.is_empty() {
            Origin::Files
        } else {
            Origin::Refreshed
        };
        let entry = Arc::new(entry_of(&made, workshop.history.next_number(), origin, None));
        if workshop.history.says(&entry) {
            self.settled(&workshop.history, &made.bad);
            return Ok(Some(self.table()));
        }
        Ok(Some(self.go_live(&mut workshop, made, entry, place).await))
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
