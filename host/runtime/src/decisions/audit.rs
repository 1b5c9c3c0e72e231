//! Builds tables of the live chains, for audits that evaluate existing objects.

use std::sync::Arc;

use crate::{
    Error, Host, Table,
    changes::start::modules_of,
    live::assembly::{AssembledTable, MissingModules},
    live::exceptions::LiveException,
    live::plugins::LiveModules,
    live::source::run_blocking,
};

impl Host {
    /// Builds a table of the live chains for audits. It has the same modules as the live table, but no candidates, and
    /// its outcomes are neither counted nor recorded. Calls of its plugins count towards the limit for
    /// [evaluations](Self::evaluate), so that they do not delay requests. If `call_webhooks` is false, the stages that
    /// call webhooks are left out.
    ///
    /// # Errors
    ///
    /// Fails if the table cannot be built.
    pub async fn audit_table(&self, call_webhooks: bool) -> Result<Arc<Table>, Error> {
        let source = self.0.state.lock().await.source.clone();
        let live = self.0.live.load_full();
        let set = source.stores.set_of(&live.entry);
        let chain_definitions = source.chain_definitions.clone();
        let (definitions, exceptions) = run_blocking(move || {
            let defined = set.definitions()?;
            let unchecked = defined.exceptions.into_iter().map(|definition| LiveException {
                definition,
                unknown: Vec::new(),
            });
            let exceptions: Arc<[_]> = unchecked.collect();
            let mut chains = defined.chains;
            chains.extend(chain_definitions);
            for chain in &mut chains {
                chain
                    .stages
                    .retain(|stage| call_webhooks || stage.hook.server().is_none());
                for stage in &mut chain.stages {
                    stage.candidate = None;
                }
            }
            chains.retain(|chain| !chain.stages.is_empty());
            Ok::<_, Error>((chains, exceptions))
        })
        .await??;
        let assembler = &self.0.evaluator.assembler;
        let none = LiveModules::default();
        let assembled = assembler.assemble(definitions, modules_of(&live.entry), &none, MissingModules::All);
        let AssembledTable { chains, plugins, .. } = assembled.await?;
        let native = source.native_chains.iter().map(|chain| assembler.native_chain(chain));
        let table = Table {
            revision: live.entry.revision().number,
            hash: live.table.hash,
            plugins: plugins.into_iter().map(|(_, plugin)| plugin).collect(),
            exceptions,
            ..Table::without_observer(&source, native.chain(chains).collect())
        };
        Ok(Arc::new(table.with_disabled_stages(&self.0.disabled_stages.lock())))
    }
}
