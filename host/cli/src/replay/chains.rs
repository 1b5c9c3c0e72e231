//! Prepares the chains through which requests are replayed.

use std::path::PathBuf;

use admittance::{
    ModuleReference,
    definitions::{ChainDefinition, StageId},
};
use admittance_admission::suggestion_or;

use crate::arguments;

pub(crate) fn load_without_candidates(
    paths: &[PathBuf],
    may_call_webhooks: bool,
) -> crate::Result<Vec<ChainDefinition>> {
    without_candidates(arguments::load_chains(paths)?, may_call_webhooks)
}

/// Removes the candidates of stages, because they are not replayed.
pub(crate) fn without_candidates(
    mut chains: Vec<ChainDefinition>,
    may_call_webhooks: bool,
) -> crate::Result<Vec<ChainDefinition>> {
    for chain in &mut chains {
        for stage in &mut chain.stages {
            stage.candidate = None;
            if !may_call_webhooks && stage.hook.server().is_some() {
                return Err(format!(
                    "{}: stage {} of chain {} calls a webhook, which would be sent every request; \
                     give --call-webhooks to allow that, or remove the stage",
                    stage.location, stage.spec.name, chain.name
                )
                .into());
            }
        }
    }
    Ok(chains)
}

pub(super) fn replace_module(
    chains: &mut [ChainDefinition],
    id: &StageId,
    module: &ModuleReference,
) -> crate::Result<()> {
    let (mut stage_ids, mut matching_stages) = (Vec::new(), Vec::new());
    for chain in chains {
        for stage in &mut chain.stages {
            let phase = id.phase.map_or_else(String::new, |_| format!("{}:", chain.phase));
            stage_ids.push(format!("{phase}{}/{}", chain.name, stage.spec.name));
            if id.identifies(chain.phase, &chain.name, &stage.spec.name) {
                matching_stages.push(stage);
            }
        }
    }
    let stage = match matching_stages.as_mut_slice() {
        [stage] => stage,
        [] => {
            let alternatives = format!("there are {}", stage_ids.join(", "));
            let suggestion = suggestion_or(&id.to_string(), &stage_ids, &alternatives);
            return Err(format!("--stage: there is no stage {id}; {suggestion}").into());
        }
        _ => {
            let error = format!("--stage: {id} is in both phases; write Mutating:{id} or Validating:{id}");
            return Err(error.into());
        }
    };
    let mut plugins = stage.hook.plugins_mut();
    let [plugin] = plugins.as_mut_slice() else {
        return Err(format!("--stage: {id} calls no plugin and has no module").into());
    };
    plugin.source = module.clone();
    plugin.digest = None;
    plugin.refresh = None;
    Ok(())
}
