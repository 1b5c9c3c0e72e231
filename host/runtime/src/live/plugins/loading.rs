//! Fetches a module, compiles it unless the store contains its compiled form, and loads the plugin.

use std::sync::Arc;

use admittance_admission::on_thread_for_long_work;
use admittance_catalog::{
    CompiledCode, CompiledForm, CompiledKey, Freshness, Module, ModuleReference, ReferenceResolver, Store,
};
use admittance_sandbox::{Error, Plugin, Prepared, Sandbox};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{PluginOrder, Progress};
use crate::{
    StageErrorCause,
    live::assembly::{Assembler, FetchScope, Modules},
    status::metrics,
};

pub(super) async fn fetch_module(
    assembler: &Assembler,
    resolver: &ReferenceResolver,
    order: &PluginOrder,
    modules: &Modules,
) -> Result<Module, StageErrorCause> {
    let catalog = &assembler.catalog;
    let freshness = match modules {
        Modules::AsOf(digests) => match digests.get(&order.stage_address()) {
            Some(digest) => return Ok(catalog.load_stored(&order.reference, *digest).await?),
            None => Freshness::RecordedOnly,
        },
        Modules::Current(FetchScope::All(again)) if again.contains(&order.reference) => Freshness::Resolve,
        Modules::Current(FetchScope::Of(references)) if !references.contains(&order.reference) => {
            Freshness::RecordedOnly
        }
        Modules::Current(_) => Freshness::PreferRecorded,
    };
    let progress = assembler.progress.clone();
    let on_progress = |fetch| {
        progress(Progress::Fetching {
            reference: order.reference.clone(),
            progress: Box::new(fetch),
        });
    };
    let _permit = match (&order.reference, freshness) {
        (ModuleReference::File(_), _) | (_, Freshness::RecordedOnly) => None,
        _ => Some(acquire_permit(&assembler.fetchers).await?),
    };
    let module = resolver
        .obtain(&order.reference, order.pinned_digest, freshness, &on_progress)
        .await?;
    let store = catalog.store().filter(|_| assembler.fills_store);
    if let (ModuleReference::File(_), Some(store)) = (&order.reference, store) {
        // The module file may change later, but a rollback needs its present content, so the store keeps a copy.
        let (store, module_copy) = (store.clone(), module.clone());
        let insertion = on_thread_for_long_work(move || store.insert_module(&module_copy))
            .await
            .map_err(StageErrorCause::Interrupted)?;
        if let Err(error) = insertion {
            metrics::count_write_failure("store");
            tracing::warn!(%error, "a module could not be stored; a rollback to it is not possible once its \
            file changes");
        }
    }
    Ok(module)
}

async fn acquire_permit(semaphore: &Semaphore) -> Result<SemaphorePermit<'_>, StageErrorCause> {
    semaphore.acquire().await.map_err(|_| StageErrorCause::Stopped)
}

pub(super) fn compiled_key(sandbox: &Sandbox, module: &Module, order: &PluginOrder) -> CompiledKey {
    CompiledKey::new(module.digest(), &order.settings, &sandbox.fingerprint())
}

/// Loads the plugin that stages share. Returns it, and whether its compiled form came from the store.
pub(super) async fn load_or_compile(
    assembler: &Assembler,
    sandbox: &Sandbox,
    module: &Module,
    order: &PluginOrder,
) -> Result<(Arc<Plugin>, bool), StageErrorCause> {
    let key = compiled_key(sandbox, module, order);
    if let Some(plugin) = load_stored(assembler, sandbox, key, order).await? {
        return Ok((Arc::new(plugin), true));
    }
    let prepared = prepare(assembler, sandbox, module, key, order).await?;
    // The plugin has just been compiled, and its compiled form was written to a file in the store. The file is mapped
    // into memory instead of using the code that the compiler returned, because this takes less memory.
    if assembler.catalog.store().is_some_and(Store::maps_code)
        && let Some(plugin) = load_stored(assembler, sandbox, key, order).await?
    {
        return Ok((Arc::new(plugin), false));
    }
    let _permit = acquire_permit(&assembler.loaders).await?;
    let (sandbox, config) = (sandbox.clone(), order.config.clone());
    let plugin = on_thread_for_long_work(move || sandbox.load(&prepared, &config))
        .await
        .map_err(StageErrorCause::Interrupted)??;
    Ok((Arc::new(plugin), false))
}

/// Loads a plugin from the store; returns `None` if the store has no compiled form of it that can be loaded.
async fn load_stored(
    assembler: &Assembler,
    sandbox: &Sandbox,
    key: CompiledKey,
    order: &PluginOrder,
) -> Result<Option<Plugin>, StageErrorCause> {
    let Some(store) = assembler.catalog.store().cloned() else {
        return Ok(None);
    };
    let _permit = acquire_permit(&assembler.loaders).await?;
    let (sandbox, config) = (sandbox.clone(), order.config.clone());
    let load = move || {
        let CompiledForm { code, header } = store.read_compiled(key)?;
        let prepared = match code {
            CompiledCode::File(path) => Prepared::from_file(path, &header),
            CompiledCode::Memory(code) => Prepared::from_bytes(code, &header),
        };
        let loaded = prepared.and_then(|prepared| sandbox.load(&prepared, &config));
        // For example, another program has removed the file from the store, or the operating system refuses to map it.
        // Either way, the plugin can be compiled again.
        if let Err(Error::Artifact(reason)) = loaded {
            tracing::warn!(
                reason,
                "a compiled plugin in the store cannot be loaded; it is compiled again"
            );
            return None;
        }
        Some(loaded)
    };
    let loaded = on_thread_for_long_work(load)
        .await
        .map_err(StageErrorCause::Interrupted)?;
    Ok(loaded.transpose()?)
}

async fn prepare(
    assembler: &Assembler,
    sandbox: &Sandbox,
    module: &Module,
    key: CompiledKey,
    order: &PluginOrder,
) -> Result<Prepared, StageErrorCause> {
    // Several stages may use the same module with different settings. While this value exists, the code that does not
    // depend on settings is compiled only once for all of these stages.
    let _shared = sandbox.share(module.digest());
    let _turn = assembler.compilers.wait_for_turn(module.bytes().len()).await;
    (assembler.progress)(Progress::Preparing {
        chain: order.chain.clone(),
        stage: order.stage.clone(),
        digest: module.digest(),
        size: module.bytes().len(),
    });
    let prepared = sandbox
        .prepare(module.bytes().clone(), &order.settings, &order.config)
        .await?;
    let store = assembler.catalog.store().filter(|_| assembler.fills_store);
    if let (Some(store), Some(code)) = (store, prepared.code()) {
        let (store, header, code) = (store.clone(), prepared.header(), code.clone());
        let store_result = on_thread_for_long_work(move || store.keep_compiled(key, &code, &header)).await;
        if let Ok(Err(error)) = store_result {
            metrics::count_write_failure("store");
            tracing::warn!(%error, "a compiled plugin could not be stored; the next start compiles it again");
        }
    }
    Ok(prepared)
}
