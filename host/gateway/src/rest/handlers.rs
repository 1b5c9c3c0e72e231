//! The handlers of the management API, and the JSON of their bodies and replies, with bcs-api's names for its fields.

use std::{sync::Arc, time::Duration};

use admittance::Moment;
use admittance_bcs::routes::Permission;
use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{RestCaller, RestError, routes::RestAction};
use crate::accounts::{
    Accounts, AccountsError, AgentReport, ClusterCredentials, ClusterName, ClusterType, Directory, PLAIN_TOKEN,
    Provider, RegisteredCluster, Secret, TokenDenied, User, UserId, UserName,
};

/// The lifetime of the tokens that this API creates. The tokens of bcs-api live for ten years.
const TOKEN_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct RestCall<'a> {
    pub(super) accounts: &'a Accounts,
    pub(super) directory: &'a Directory,
    pub(super) caller: Option<RestCaller>,
    pub(super) cluster: Option<Arc<RegisteredCluster>>,
    pub(super) parameter: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a Bytes,
}

/// The body of a request that creates a user. As in bcs-api, a body that is not an object counts as an empty object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserForm {
    user_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterForm {
    id: String,
    project_id: String,
    cluster_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CredentialsForm {
    register_token: String,
    server_addresses: String,
    cacert_data: String,
    user_token: String,
    cluster_domain: String,
}

impl RestCall<'_> {
    pub(super) async fn run(&self, action: RestAction) -> Result<Value, RestError> {
        match action {
            RestAction::CreateUser => self.create_user().await,
            RestAction::GetUser => self.get_user(),
            RestAction::CreateToken => self.create_token().await,
            RestAction::CreateCluster => self.create_cluster(None).await,
            RestAction::CreateBcsCluster => self.create_bcs_cluster().await,
            RestAction::QueryById => self.query_by_id(),
            RestAction::QueryByClusterId => self.query_by_cluster_id(),
            RestAction::CreateRegisterToken => self.create_register_token().await,
            RestAction::GetRegisterToken => self.get_register_token(),
            RestAction::PutCredentials => self.put_credentials().await,
            RestAction::GetCredentials => self.get_credentials(),
            RestAction::GetClientCredentials => self.get_client_credentials(),
        }
    }

    /// Parses the body as the JSON library of Go does: names may be in any case, and `null` counts as a missing value.
    fn form<T: DeserializeOwned + Default>(&self) -> T {
        let body: Map<String, Value> = serde_json::from_slice(self.body).unwrap_or_default();
        let present_fields = body.into_iter().filter(|(_, value)| !value.is_null());
        let lowercase = |(name, value): (String, _)| (name.to_ascii_lowercase(), value);
        let fields: Map<_, _> = present_fields.map(lowercase).collect();
        serde_json::from_value(fields.into()).unwrap_or_default()
    }

    fn caller(&self) -> Result<&RestCaller, RestError> {
        self.caller.as_ref().ok_or_else(|| TokenDenied::Unknown.into())
    }

    fn cluster(&self) -> Result<&RegisteredCluster, RestError> {
        let missing = || RestError::ClusterNotFound(self.parameter.to_owned());
        self.cluster.as_deref().ok_or_else(missing)
    }

    fn actor(&self) -> Result<String, RestError> {
        Ok(format!("user {}", self.caller()?.session.user.name))
    }

    async fn create_user(&self) -> Result<Value, RestError> {
        let UserForm { user_name } = self.form();
        let name = require_field("user_name", user_name)?;
        // bcs-api adds `plain:` to any name, and this handler does the same. If the name already has a kind, as `a:b`
        // does, the result is `plain:a:b`, which the parser refuses.
        let parsed = format!("plain:{name}").parse::<UserName>();
        let name = parsed.map_err(|error| RestError::Validation(error.to_string()))?;
        let created = self.accounts.create_user(&self.actor()?, &name, false, &[]).await;
        match created {
            Ok(created) => Ok(user_json(&created)),
            Err(AccountsError::Exists(..)) => Err(RestError::UserExists(name.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn get_user(&self) -> Result<Value, RestError> {
        let not_found = || RestError::UserNotFound(self.parameter.to_owned());
        let name = UserName::plain(self.parameter).map_err(|_| not_found())?;
        let matching_user = self.directory.users().find(|user| user.name == name);
        matching_user
            .map(|matching_user| user_json(matching_user))
            .ok_or_else(not_found)
    }

    async fn create_token(&self) -> Result<Value, RestError> {
        let invalid = || RestError::UserId(self.parameter.to_owned());
        let id = UserId(self.parameter.parse().map_err(|_| invalid())?);
        let user = self.directory.user(id).ok_or_else(invalid)?;
        let token = self
            .accounts
            .get_or_create_token(&self.actor()?, user, TOKEN_LIFETIME)
            .await?;
        Ok(json!({
            "ID": token.id,
            "UserId": id,
            "Type": PLAIN_TOKEN,
            "Value": token.value.0,
            "ExpiresAt": token.expires_at,
            "CreatedAt": token.created_at,
        }))
    }

    async fn create_bcs_cluster(&self) -> Result<Value, RestError> {
        let ClusterForm {
            project_id,
            cluster_type,
            ..
        } = self.form();
        let project_id = require_field("project_id", project_id)?;
        let kind = match cluster_type.as_str() {
            "" => ClusterType::Kubernetes,
            text => text.parse().map_err(|_| RestError::ClusterType(text.to_owned()))?,
        };
        self.create_cluster(Some((&project_id, kind))).await
    }

    async fn create_cluster(&self, bcs: Option<(&str, ClusterType)>) -> Result<Value, RestError> {
        let ClusterForm { id, .. } = self.form();
        let id = require_field("id", id)?;
        let name = ClusterName::new(&id, bcs)?;
        let creator = &self.caller()?.session.user;
        let created = self.accounts.create_cluster(&self.actor()?, Some(creator), &name).await;
        match created {
            Ok(created) => Ok(cluster_json(&created)),
            Err(AccountsError::Exists(..)) => Err(RestError::ClusterExists(id)),
            Err(error) => Err(error.into()),
        }
    }

    fn query_by_id(&self) -> Result<Value, RestError> {
        let id = self.cluster_id()?;
        let project = self.query_parameter("project_id");
        let matching_cluster = self.directory.clusters().find(|cluster| {
            let info = cluster.bcs.as_ref();
            info.is_some_and(|info| {
                info.cluster_id.eq_ignore_ascii_case(&id) && info.project_id.eq_ignore_ascii_case(&project)
            })
        });
        self.visible_cluster_json(matching_cluster, id)
    }

    /// Returns the cluster whose ID is in the query. Several projects can register the same ID. Then this is the
    /// cluster of the project that registered it first.
    fn query_by_cluster_id(&self) -> Result<Value, RestError> {
        let id = self.cluster_id()?;
        self.visible_cluster_json(self.directory.first_with_platform_id(&id), id)
    }

    fn cluster_id(&self) -> Result<String, RestError> {
        require_field("cluster_id", self.query_parameter("cluster_id"))
    }

    fn query_parameter(&self, name: &str) -> String {
        let pair = form_urlencoded::parse(self.query.as_bytes()).find(|(key, _)| key == name);
        pair.map(|(_, value)| value.into_owned()).unwrap_or_default()
    }

    fn visible_cluster_json(
        &self,
        matching_cluster: Option<&Arc<RegisteredCluster>>,
        id: String,
    ) -> Result<Value, RestError> {
        let user = &self.caller()?.session.user;
        matching_cluster
            .filter(|cluster| self.directory.permission(user, cluster) >= Some(Permission::Read))
            .map(|matching_cluster| cluster_json(matching_cluster))
            .ok_or(RestError::ClusterNotFound(id))
    }

    async fn create_register_token(&self) -> Result<Value, RestError> {
        let cluster = self.cluster()?;
        let created = self
            .accounts
            .create_register_token(&self.actor()?, cluster, false)
            .await;
        match created {
            Ok(token) => Ok(register_tokens_json(cluster, &token.value, token.created_at)),
            Err(AccountsError::Exists(..)) => Err(RestError::RegisterTokenExists(cluster.id.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Describes the cluster's register token. The value is missing, because only a digest of it is stored.
    fn get_register_token(&self) -> Result<Value, RestError> {
        let cluster = self.cluster()?;
        let register_token = cluster.register_token.as_ref();
        let token = register_token.ok_or_else(|| RestError::RegisterTokenNotFound(cluster.id.clone()))?;
        Ok(register_tokens_json(cluster, &Secret(String::new()), token.created_at))
    }

    async fn put_credentials(&self) -> Result<Value, RestError> {
        let form: CredentialsForm = self.form();
        let token = require_field("register_token", form.register_token)?;
        let report = AgentReport {
            server_addresses: require_field("server_addresses", form.server_addresses)?,
            ca: require_field("cacert_data", form.cacert_data)?,
            user_token: Secret(require_field("user_token", form.user_token)?),
            cluster_domain: form.cluster_domain,
        };
        self.accounts.report(self.parameter, token.as_bytes(), report).await?;
        Ok(json!({}))
    }

    /// Describes the cluster's credentials, without the token of its agent, which is sent only to the cluster.
    fn get_credentials(&self) -> Result<Value, RestError> {
        let not_found = || RestError::ClusterNotFound(self.parameter.to_owned());
        let cluster = self.directory.cluster(self.parameter).ok_or_else(not_found)?;
        let credentials = required_credentials(cluster)?;
        let servers: Vec<String> = credentials.servers().collect();
        Ok(json!({
            "ID": 0,
            "ClusterId": cluster.id,
            "ServerAddresses": servers.join(";"),
            "CaCertData": credentials.ca,
            "UserToken": "",
            "ClusterDomain": credentials.cluster_domain,
            "CreatedAt": credentials.reported_at,
        }))
    }

    fn get_client_credentials(&self) -> Result<Value, RestError> {
        let cluster = self.cluster()?;
        let credentials = required_credentials(cluster)?;
        Ok(json!({
            "cluster_id": cluster.id,
            "server_address_path": format!("/tunnels/clusters/{}/", cluster.identifier),
            // The token is copied from the user's request, because the gateway stores only digests of tokens.
            "user_token": String::from_utf8_lossy(&self.caller()?.token),
            "cacert_data": credentials.ca,
        }))
    }
}

fn require_field(field: &str, value: String) -> Result<String, RestError> {
    if value.is_empty() {
        return Err(RestError::Validation(format!("field '{field}' is required")));
    }
    Ok(value)
}

fn required_credentials(cluster: &RegisteredCluster) -> Result<&ClusterCredentials, RestError> {
    let credentials = cluster.credentials.as_deref();
    credentials.ok_or_else(|| RestError::CredentialsNotFound(cluster.id.clone()))
}

fn user_json(user: &User) -> Value {
    json!({
        "ID": user.id,
        "Name": user.name.as_str(),
        "IsSuperUser": user.is_super_user,
        "CreatedAt": user.created_at,
        "BackendType": "",
        "BackendCredentials": null,
    })
}

fn cluster_json(cluster: &RegisteredCluster) -> Value {
    let provider = match cluster.provider {
        Provider::Plain => 1,
        Provider::Bcs => 2,
    };
    json!({
        "id": cluster.id,
        "provider": provider,
        "creator_id": cluster.creator,
        "identifier": cluster.identifier,
        "created_at": cluster.created_at,
    })
}

fn register_tokens_json(cluster: &RegisteredCluster, token: &Secret, created_at: Moment) -> Value {
    json!([{
        "id": 0,
        "cluster_id": cluster.id,
        "token": token.0,
        "created_at": created_at,
    }])
}
