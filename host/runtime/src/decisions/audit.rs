//! The live chains, for objects that exist already.

use std::sync::Arc;

use admittance_admission::ChainIndex;

use crate::{
    Error, Host, Table,
    host::modules_of,
    live::assembly::{Assembled, MayFail, Modules},
    live::exceptions::LiveException,
    live::plugins::LiveModules,
    live::source::blocking,
};

impl Host {
    /// The live chains with their exact modules and without candidates, in a table of its own: its plugins run in the slots
    /// of [evaluations](Self::evaluate), and its outcomes are not observed. Without `call_webhooks`, it lacks the stages
    /// that call one.
    ///
    /// # Errors
    ///
    /// When the table cannot be built.
    pub async fn audit_table(&self, call_webhooks: bool) -> Result<Arc<Table>, Error> {
        let (source, last) = {
            let state = self.0.state.lock().await;
            (state.source.clone(), self.0.live.load().revisions.last().cloned())
        };
        let set = last.as_deref().map(|last| source.stores.set_of(last));
        let set = set.unwrap_or_default();
        let given = source.given.clone();
        let (definitions, exceptions) = blocking(move || {
            let defined = set.definitions()?;
            let exceptions = defined.exceptions.into_iter().map(|definition| LiveException {
                definition,
                unknown: Vec::new(),
            });
            let exceptions: Arc<[_]> = exceptions.collect();
            let mut chains = defined.chains;
            chains.extend(given);
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
        let modules = last.as_deref().map_or(Modules::AsOf(Arc::default()), modules_of);
        let live = LiveModules::default();
        let assembled = assembler.assemble(definitions, modules, &live, MayFail::All);
        let Assembled { chains, plugins, .. } = assembled.await?;
        let native = source.chains.iter().map(|chain| assembler.native(chain));
        let chains: Vec<_> = native.chain(chains).collect();
        let table = Table {
            revision: last.map_or(0, |last| last.revision().number),
            hash: self.table().hash,
            index: Arc::new(ChainIndex::new(chains.iter().map(|chain| &**chain))),
            chains,
            plugins: plugins.into_iter().map(|(_, plugin)| plugin).collect(),
            exceptions,
            namespaces: source.namespaces.clone(),
            authorizer: source.authorizer.clone(),
            request_timeout: source.request_timeout,
            observer: None,
            slot: None,
        };
        Ok(Arc::new(table.with_disabled(&self.0.disabled.lock())))
    }
}
