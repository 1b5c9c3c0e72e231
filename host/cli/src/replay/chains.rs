//! The chains that requests are replayed through.

use std::path::PathBuf;

use admittance::{
    ModuleReference,
    definitions::{ChainDefinition, HookDefinition, PluginDefinition, StageDefinition, StageId},
};

use crate::arguments;

/// The chains of these files and directories, without candidates, which are not compared here.
pub(super) fn load(paths: &[PathBuf], may_call_webhooks: bool) -> crate::Result<Vec<ChainDefinition>> {
    let mut chains = arguments::load(paths)?;
    for chain in &mut chains {
        for stage in &mut chain.stages {
            stage.candidate = None;
            if let (HookDefinition::Webhook(_), false) = (&stage.hook, may_call_webhooks) {
                return Err(format!(
                    "{}: stage {} of chain {} calls a webhook, which would be sent every recorded request; \
                     give --call-webhooks to allow that, or remove the stage",
                    stage.location, stage.spec.name, chain.name
                )
                .into());
            }
        }
    }
    Ok(chains)
}

/// Replaces the module of a stage.
pub(super) fn replace(
    chains: &mut [ChainDefinition],
    id: &StageId,
    module: &ModuleReference,
) -> crate::Result<()> {
    let known: Vec<_> = chains
        .iter()
        .flat_map(|chain| chain.stages.iter().map(|stage| name(chain, stage)))
        .collect();
    let is_it = |chain: &ChainDefinition, stage: &StageDefinition| {
        // BCS names may contain a `/`, so full names are compared.
        id.phase.is_none_or(|phase| phase == chain.phase)
            && format!("{}/{}", chain.name, stage.spec.name) == format!("{}/{}", id.chain, id.stage)
    };
    let mut found = chains.iter_mut().flat_map(|chain| {
        let matching: Vec<_> = chain.stages.iter().map(|stage| is_it(chain, stage)).collect();
        let stages = chain.stages.iter_mut().zip(matching);
        stages.filter_map(|(stage, is_it)| is_it.then_some(stage))
    });
    let (stage, another) = (found.next(), found.next());
    let Some(stage) = stage else {
        return Err(format!("--stage: there is no stage {id}; there are {}", known.join(", ")).into());
    };
    if another.is_some() {
        return Err(
            format!("--stage: {id} is in both phases; write Mutating:{id} or Validating:{id}").into(),
        );
    }
    let HookDefinition::Plugin(plugin) = &mut stage.hook else {
        return Err(format!("--stage: {id} calls a webhook and has no module").into());
    };
    // Its settings and grants stay; the pin was of the other one.
    *plugin = PluginDefinition {
        source: module.clone(),
        digest: None,
        refresh: None,
        ..plugin.clone()
    };
    Ok(())
}

fn name(chain: &ChainDefinition, stage: &StageDefinition) -> String {
    format!("{}:{}/{}", chain.phase.as_str(), chain.name, stage.spec.name)
}
