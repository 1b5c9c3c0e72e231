//! Commands that query or change a running driver through its admin API.

mod candidates;
mod change;
mod client;
mod connection;
mod definitions;
mod error;
mod history;
mod record;
mod status;

pub(crate) use self::{
    candidates::CandidatesArguments,
    change::{ApplyArguments, DeleteArguments, PromoteArguments, RollbackArguments},
    definitions::GetArguments,
    history::{DiffArguments, HistoryArguments},
    record::RecordArguments,
    status::StatusArguments,
};

pub(crate) mod run {
    pub(crate) use super::{
        candidates::run as candidates,
        change::{
            run_apply as apply, run_delete as delete, run_promote as promote, run_rollback as rollback,
        },
        definitions::run as get,
        history::{run as history, run_diff as diff},
        record::run as record,
        status::run as status,
    };
}
