//! What a change of definitions takes away.

use std::collections::HashMap;

use admittance_admission::{Phase, WebhookTarget};
use serde_json::Value as Json;

use crate::{ChainDefinition, Definitions, ExceptionDefinition, HookDefinition, StageDefinition};

/// Whether a stage may refuse less than before: it is gone, or is called or enforced in another way, or its plugin has
/// less in its settings; or there is an exception that was not there.
///
/// A stage that became stricter counts too: telling them apart would take a comparison of selectors and expressions.
/// What does not come of a part of a file does not count: another module or URL, other values in settings, more rules of
/// a chain.
pub(super) fn enforces_less(before: &Definitions, now: &Definitions) -> bool {
    let is_new = |exception: &ExceptionDefinition| {
        let mut others = before.exceptions.iter();
        !others.any(|other| other.exception == exception.exception && other.stages == exception.stages)
    };
    let chains: HashMap<_, _> = now.chains.iter().map(|chain| (id(chain), chain)).collect();
    let is_less = |chain: &ChainDefinition| chains.get(&id(chain)).is_none_or(|now| of_chain(chain, now));
    now.exceptions.iter().any(is_new) || before.chains.iter().any(is_less)
}

fn id(chain: &ChainDefinition) -> (Phase, &str) {
    (chain.phase, &chain.name)
}

fn of_chain(before: &ChainDefinition, now: &ChainDefinition) -> bool {
    let is_less = |before: &StageDefinition| {
        let mut stages = now.stages.iter();
        let now = stages.find(|now| now.spec.name == before.spec.name);
        now.is_none_or(|now| of_stage(before, now))
    };
    !before.rules.iter().all(|rule| now.rules.contains(rule)) || before.stages.iter().any(is_less)
}

fn of_stage(before: &StageDefinition, now: &StageDefinition) -> bool {
    before.spec != now.spec
        || match (&before.hook, &now.hook) {
            (HookDefinition::Plugin(before), HookDefinition::Plugin(now)) => {
                is_cut(&before.settings, &now.settings)
            }
            // Another URL is like another module. What a service lacks has a default.
            (HookDefinition::Webhook(before), HookDefinition::Webhook(now)) => {
                let is_url = |target: &WebhookTarget| matches!(target, WebhookTarget::Url(_));
                let are_urls = is_url(&before.target) && is_url(&now.target);
                before.protocol != now.protocol
                    || before.ca_bundle != now.ca_bundle
                    || !are_urls && before.target != now.target
            }
            // Members have a location, which changes with every line above them.
            (HookDefinition::Group(before), HookDefinition::Group(now)) => {
                let settings = |name: &str| {
                    let member = now.members.iter().find(|member| &*member.name == name);
                    member.map(|member| &member.plugin.settings)
                };
                before.expression != now.expression
                    || before.members.iter().any(|member| {
                        settings(&member.name).is_none_or(|now| is_cut(&member.plugin.settings, now))
                    })
            }
            (before, now) => before != now,
        }
}

/// Whether a value may be the beginning of a value like the one before.
fn is_cut(before: &Json, now: &Json) -> bool {
    match (before, now) {
        (before, Json::Null) => !before.is_null(),
        (Json::Object(before), Json::Object(now)) => before
            .iter()
            .any(|(key, value)| now.get(key).is_none_or(|now| is_cut(value, now))),
        (Json::Array(before), Json::Array(now)) => {
            before.len() > now.len() || before.iter().zip(now).any(|(before, now)| is_cut(before, now))
        }
        (Json::String(before), Json::String(now)) => before != now && before.starts_with(now.as_str()),
        (before, _) => before.is_object() || before.is_array(),
    }
}

#[cfg(test)]
mod tests;
