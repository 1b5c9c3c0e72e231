//! Queries or changes a running driver through its admin API.

mod accounts;
mod candidates;
mod change;
mod client;
mod completion;
mod connection;
mod decisions;
mod definitions;
mod disable;
mod error;
mod events;
mod explain;
mod history;
mod record;
mod rollout;
mod status;

use clap::Args;
use http::Method;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use self::{
    accounts::{ClustersArguments, PermissionsArguments, RegisterTokensArguments, TokensArguments, UsersArguments},
    candidates::CandidatesArguments,
    change::{ApplyArguments, DeleteArguments, PromoteArguments, RollbackArguments},
    connection::ServerUrl,
    decisions::DecisionsArguments,
    definitions::GetArguments,
    disable::{DisableArguments, EnableArguments},
    explain::ExplainArguments,
    history::{DiffArguments, HistoryArguments},
    record::RecordArguments,
    rollout::RolloutArguments,
    status::StatusArguments,
};
use self::{
    client::{AdminClient, Message},
    connection::DriverConnection,
};
use crate::output::Output;

const JSON: &str = "application/json";

/// The arguments of each command that prints a reply of a driver.
#[derive(Debug, Args)]
struct Query {
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: DriverConnection,
}

impl Query {
    fn get_and_print<T: Serialize + DeserializeOwned>(
        &self,
        path: &[&str],
        parameters: &[(&str, String)],
        text: impl FnOnce(&T) -> String,
    ) -> crate::Result<T> {
        let message = Message { parameters, body: None };
        self.send_and_print(Method::GET, path, message, text)
    }

    /// Posts a body to the driver as JSON, and prints the reply. The body `()` is not sent.
    fn post_and_print<T: Serialize + DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        text: impl FnOnce(&T) -> String,
    ) -> crate::Result<()> {
        let body = Some(serde_json::to_string(body)?).filter(|body| body != "null");
        let message = Message {
            parameters: &[],
            body: body.map(|body| (JSON, body)),
        };
        self.send_and_print(Method::POST, path, message, text).map(drop)
    }

    fn send_and_print<T: Serialize + DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        message: Message<'_>,
        text: impl FnOnce(&T) -> String,
    ) -> crate::Result<T> {
        let reply = self.request(method, path, message)?;
        self.output.print(&reply, text)?;
        Ok(reply)
    }

    fn request<T: DeserializeOwned>(&self, method: Method, path: &[&str], message: Message<'_>) -> crate::Result<T> {
        Ok(crate::block_on(
            AdminClient::new(&self.connection)?.send(method, path, message),
        )??)
    }
}
