//! The routes of the management API, with the callers that may use each of them.

use std::sync::LazyLock;

use admittance_bcs::routes::Permission;
use http::Method;
use matchit::Router;
use percent_encoding::percent_decode_str;

use super::error::RestError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedCallers {
    /// The route is open to everybody, because its handler itself checks a proof of identity in the request.
    Nothing,
    User,
    SuperUser,
    Cluster(Permission),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestAction {
    CreateUser,
    GetUser,
    CreateToken,
    CreateCluster,
    CreateBcsCluster,
    QueryById,
    QueryByClusterId,
    CreateRegisterToken,
    GetRegisterToken,
    PutCredentials,
    GetCredentials,
    GetClientCredentials,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RestRow {
    method: &'static str,
    /// The path of the route without `/rest` and without a slash at the end.
    path: &'static str,
    pub(super) needs: AllowedCallers,
    pub(super) action: RestAction,
}

const fn new_row(method: &'static str, path: &'static str, needs: AllowedCallers, action: RestAction) -> RestRow {
    RestRow {
        method,
        path,
        needs,
        action,
    }
}

/// The routes of the management API. Reading the register token of a cluster needs a greater permission than reading
/// its credentials, because whoever has the register token can replace the credentials.
#[rustfmt::skip]
pub(super) const ROUTES: [RestRow; 12] = [
    new_row("POST", "/users", AllowedCallers::SuperUser, RestAction::CreateUser),
    new_row("GET", "/users/{name}", AllowedCallers::SuperUser, RestAction::GetUser),
    new_row("POST", "/users/{name}/tokens", AllowedCallers::SuperUser, RestAction::CreateToken),
    new_row("POST", "/clusters", AllowedCallers::User, RestAction::CreateCluster),
    new_row("POST", "/clusters/bcs", AllowedCallers::User, RestAction::CreateBcsCluster),
    new_row("GET", "/clusters/bcs/query_by_id", AllowedCallers::User, RestAction::QueryById),
    new_row("GET", "/clusters/bcs/query_by_cluster_id", AllowedCallers::User, RestAction::QueryByClusterId),
    new_row("POST", "/clusters/{name}/register_tokens", AllowedCallers::Cluster(Permission::Write), RestAction::CreateRegisterToken),
    new_row("GET", "/clusters/{name}/register_tokens", AllowedCallers::Cluster(Permission::Write), RestAction::GetRegisterToken),
    new_row("PUT", "/clusters/{name}/credentials", AllowedCallers::Nothing, RestAction::PutCredentials),
    new_row("GET", "/clusters/{name}/credentials", AllowedCallers::SuperUser, RestAction::GetCredentials),
    new_row("GET", "/clusters/{name}/client_credentials", AllowedCallers::Cluster(Permission::Read), RestAction::GetClientCredentials),
];

type Rows = Vec<&'static RestRow>;

static ROUTER: LazyLock<Router<Rows>> = LazyLock::new(|| {
    let mut router: Router<Rows> = Router::new();
    for row in &ROUTES {
        let rows = ROUTES.iter().filter(|other| other.path == row.path).collect();
        // The table has a row for each method of a path, so this loop can insert a path several times. Only the first
        // insertion succeeds. The others are not needed, because they have the same rows.
        let _ = router.insert(row.path, rows);
    }
    router
});

pub(super) fn find_row(method: &Method, path: &str) -> Result<(&'static RestRow, String), RestError> {
    let rest = path.strip_prefix("/rest").unwrap_or(path);
    let path_match = ROUTER
        .at(rest.strip_suffix('/').unwrap_or(rest))
        .map_err(|_| RestError::NoRoute)?;
    let method_row = path_match.value.iter().find(|row| row.method == method.as_str());
    let row = method_row.ok_or(RestError::Method)?;
    let name = percent_decode_str(path_match.params.get("name").unwrap_or_default())
        .decode_utf8()
        .map_err(|_| RestError::NoRoute)?;
    Ok((row, name.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn each_path_of_the_management_api_leads_to_its_route() {
        for (method, path, expected) in [
            ("POST", "/rest/users/", Some((RestAction::CreateUser, ""))),
            ("POST", "/rest/users", Some((RestAction::CreateUser, ""))),
            ("GET", "/rest/users/plain:a", Some((RestAction::GetUser, "plain:a"))),
            ("GET", "/rest/users/plain%3Aa", Some((RestAction::GetUser, "plain:a"))),
            ("POST", "/rest/users/1/tokens", Some((RestAction::CreateToken, "1"))),
            ("POST", "/rest/clusters/", Some((RestAction::CreateCluster, ""))),
            ("POST", "/rest/clusters/bcs", Some((RestAction::CreateBcsCluster, ""))),
            ("GET", "/rest/clusters/bcs/query_by_id/", Some((RestAction::QueryById, ""))),
            ("PUT", "/rest/clusters/plain-a/credentials", Some((RestAction::PutCredentials, "plain-a"))),
            ("GET", "/rest/clusters/plain-a/credentials", Some((RestAction::GetCredentials, "plain-a"))),
            ("DELETE", "/rest/clusters/plain-a/credentials", None),
            ("GET", "/rest/", None),
            ("GET", "/rest/clusters/a/b/c", None),
            ("GET", "/rest//users/a", None),
        ] {
            let route = find_row(&method.parse().unwrap(), path).ok();
            let actual = route.as_ref().map(|(row, name)| (row.action, name.as_str()));
            assert_eq!(actual, expected, "{method} {path}");
        }
    }

    #[test]
    fn only_the_route_for_reports_of_agents_needs_no_user() {
        for row in ROUTES {
            let is_open = row.needs == AllowedCallers::Nothing;
            assert_eq!(is_open, row.action == RestAction::PutCredentials, "{row:?}");
        }
    }
}
