//! Gatekeeper: `ConstraintTemplate`, its constraints, what of the cluster is kept for them (`Config`, `SyncSet`), mutators,
//! and `ExpansionTemplate`.
//!
//! A template is a chain, and each of its constraints is a stage of it. A template in CEL is evaluated by the host, one in
//! Rego by the stock plugin `rego`: its stages share one configured module, since the settings hold all constraints and
//! each stage names its own. What an expansion template generates of an object is seen by further stages of each constraint.

mod constraint;
mod expansion;
mod inventory;
mod matching;
mod mutator;
mod schema;
mod sync;
mod template;

pub(crate) use self::{
    constraint::{ConstraintDocument, read as read_constraint},
    expansion::{ExpansionDocument, read as read_expansion},
    mutator::{
        CHAIN as CHAIN_OF_MUTATORS, MutatorDocument, MutatorKind, chain as chain_of_mutators,
        read as read_mutator,
    },
    sync::{Sync, read_config, read_sync_set},
    template::{Surroundings, TemplateDocument, read as read_template},
};

/// The documents that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Template,
    /// Its kind is that of its template.
    Constraint,
    Config,
    SyncSet,
    Expansion,
    Mutator(MutatorKind),
}

impl Document {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Template => "ConstraintTemplate",
            Self::Constraint => "constraint",
            Self::Config => "Config",
            Self::SyncSet => "SyncSet",
            Self::Expansion => "ExpansionTemplate",
            Self::Mutator(kind) => kind.as_str(),
        }
    }
}

#[cfg(test)]
mod tests;
