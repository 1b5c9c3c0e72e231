//! Reads the policies that a cluster contains.

use admittance::admission::GroupVersionKind;
use admittance_cluster::Cluster;
use admittance_definitions::{DefinitionFile, DocumentForms, DocumentKind};
use serde_json::{Value as Json, json};

use crate::cluster::ClusterArguments;

/// Each template of Gatekeeper defines a kind of constraints, whose objects are read too.
const TEMPLATE_KIND: &str = "ConstraintTemplate";

const CONSTRAINTS_VERSION: &str = "constraints.gatekeeper.sh/v1beta1";

pub(super) async fn read_from_cluster(arguments: &ClusterArguments) -> crate::Result<Vec<DefinitionFile>> {
    let cluster = arguments.connect().await?;
    let mut lists = Vec::new();
    let forms = DocumentForms::default();
    for DocumentKind {
        name: kind, versions, ..
    } in forms.importable_kinds()
    {
        // Only a name with a version, such as `group/v1`, has a path in the API. The name `group/` stands for all
        // versions of the group, so it is skipped.
        let served = |version: &&&str| version.contains('/') && !version.ends_with('/');
        for version in versions.iter().filter(served) {
            let path = format!("/apis/{version}/{}", plural_of_kind(version, kind));
            if let Some(items) = read_list(&cluster, &path).await? {
                if *kind == TEMPLATE_KIND {
                    lists.extend(read_constraints(&cluster, &items).await?);
                }
                lists.push(list_file(version, kind, &path, items));
                break;
            }
        }
    }
    Ok(lists)
}

/// Returns the name of a kind in API paths, which is usually the plural. Mutators and expansion templates of Gatekeeper
/// have the singular in their paths.
fn plural_of_kind(version: &str, kind: &str) -> String {
    match version.split_once('.') {
        Some(("mutations" | "expansion", _)) => kind.to_lowercase(),
        _ => {
            GroupVersionKind::from_api_version(version, kind)
                .guess_resource()
                .resource
        }
    }
}

async fn read_constraints(cluster: &Cluster, templates: &[Json]) -> crate::Result<Vec<DefinitionFile>> {
    let mut lists = Vec::new();
    for template in templates {
        let kind = template.pointer("/spec/crd/spec/names/kind");
        let Some(kind) = kind.and_then(Json::as_str) else {
            continue;
        };
        let path = format!("/apis/{CONSTRAINTS_VERSION}/{}", kind.to_lowercase());
        // The API server knows this kind of constraints only if Gatekeeper has accepted the template that defines it.
        // If Gatekeeper has refused the template, there are no constraints to list.
        if let Some(items) = read_list(cluster, &path).await? {
            lists.push(list_file(CONSTRAINTS_VERSION, kind, &path, items));
        }
    }
    Ok(lists)
}

async fn read_list(cluster: &Cluster, path: &str) -> crate::Result<Option<Vec<Json>>> {
    let Some(body) = cluster.read(path).await?.body_unless_missing(path)? else {
        return Ok(None);
    };
    let mut answer: Json = serde_json::from_slice(&body).unwrap_or_default();
    match answer.get_mut("items").map(Json::take) {
        Some(Json::Array(items)) => Ok(Some(items)),
        _ => Err(format!("{path}: the API server did not answer a list").into()),
    }
}

/// The version and kind of each object are added, because the API server omits them in lists.
fn list_file(version: &str, kind: &str, path: &str, items: Vec<Json>) -> DefinitionFile {
    let with_kind = |mut item: Json| {
        if let Json::Object(fields) = &mut item {
            fields.insert("apiVersion".to_owned(), version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
        item
    };
    let items: Vec<Json> = items.into_iter().map(with_kind).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    DefinitionFile::file(format!("cluster{path}"), list.to_string())
}
