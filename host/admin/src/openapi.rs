//! Generates the OpenAPI document of the admin port from the table of its routes.

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value as Json, json};

use crate::{
    api::ErrorReply,
    config::AdminRole,
    route::{ReplyForm, Route, RouteContent},
};

const REFUSALS: [u16; 3] = [400, 401, 403];

/// Returns a generator of schemas for what clients send. In these schemas, a field that has a default is optional.
fn input_generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    settings
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
}

pub(crate) fn document(routes: &[Route]) -> Json {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .for_serialize();
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ErrorReply>();
    let mut paths: BTreeMap<String, Map<String, Json>> = BTreeMap::new();
    for route in routes {
        let operation = operation(route, &error, &mut generator);
        paths
            .entry(route.path.replace("{*", "{"))
            .or_default()
            .insert(route.method.as_str().to_owned(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Admittance",
            "description": "The admin port of `admittance serve`: status, history and changes of the live definitions.",
            "version": "v1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:9090"}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "One of `admin.tokens`."},
                "certificate": {"type": "mutualTLS", "description": "One of `admin.clients`."},
            },
        },
    })
}

fn operation(route: &Route, error: &Schema, generator: &mut SchemaGenerator) -> Json {
    let mut parameter_generator = input_generator();
    let mut parameters = parameters("path", &(route.path_schema)(&mut parameter_generator));
    parameters.extend(self::parameters(
        "query",
        &(route.query_schema)(&mut parameter_generator),
    ));
    let body = (route.body_schemas)(generator);
    let mut responses: BTreeMap<String, Json> = BTreeMap::new();
    for ReplyForm {
        status,
        description,
        content,
    } in (route.replies)(generator)
    {
        let response = responses
            .entry(status.to_string())
            .or_insert_with(|| json!({"description": description, "content": {}}));
        if let (Some(existing_content), Json::Object(more)) = (
            response.pointer_mut("/content").and_then(Json::as_object_mut),
            contents(vec![content]),
        ) {
            existing_content.extend(more);
        }
    }
    let common = REFUSALS.iter().filter(|_| route.role.is_some());
    for status in common.chain(route.refusals) {
        let content = RouteContent {
            media_type: "application/json",
            schema: error.clone(),
        };
        responses.insert(
            status.to_string(),
            json!({"description": refusal_description(*status), "content": contents(vec![content])}),
        );
    }
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": description(route),
        "security": security(route.role),
        "x-admittance-role": route.role.map(AdminRole::as_str),
        "responses": responses,
    });
    if let Json::Object(fields) = &mut operation {
        if !parameters.is_empty() {
            fields.insert("parameters".to_owned(), parameters.into());
        }
        if !body.is_empty() {
            let body = json!({"required": true, "content": contents(body)});
            fields.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

fn description(route: &Route) -> String {
    let role = match route.role {
        None => "No authentication is required.".to_owned(),
        Some(role) => format!("Needs the role {}.", role.as_str()),
    };
    [route.description, &role].join(" ").trim().to_owned()
}

/// A client needs a token, a certificate, or neither (`{}`) on loopback.
fn security(role: Option<AdminRole>) -> Json {
    match role {
        None => json!([]),
        Some(_) => json!([{"token": []}, {"certificate": []}, {}]),
    }
}

fn parameters(location: &str, schema: &Schema) -> Vec<Json> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Json::as_object);
    let parameter = |(name, schema): (&String, &Json)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| {
            without_null(schema);
            schema.remove("description")
        });
        json!({
            "name": name,
            "in": location,
            "description": description,
            // OpenAPI demands that parameters in a path are required.
            "required": location == "path" || required.contains(&name.as_str()),
            "schema": schema,
        })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// Removes null from the schema of a parameter, because clients omit a parameter instead of sending null.
fn without_null(schema: &mut Map<String, Json>) {
    if schema.get("default").is_some_and(Json::is_null) {
        schema.remove("default");
    }
    let single_type = schema.get("type").and_then(Json::as_array).and_then(|types| {
        let mut other_types = types.iter().filter(|name| *name != "null");
        other_types.next().cloned().filter(|_| other_types.next().is_none())
    });
    if let Some(single_type) = single_type {
        schema.insert("type".to_owned(), single_type);
    }
}

fn contents(contents: Vec<RouteContent>) -> Json {
    let entry = |RouteContent { media_type, schema }| (media_type.to_owned(), json!({"schema": schema}));
    Json::Object(contents.into_iter().map(entry).collect())
}

fn refusal_description(status: u16) -> &'static str {
    match status {
        400 => "The request is malformed.",
        401 => "The request is not authenticated, or its credentials are unknown.",
        403 => "The client's role does not permit the request.",
        404 => "Not found.",
        408 => "The body did not arrive in time.",
        409 => {
            "A conflict with the current state: the definitions have changed in the meantime, or must be changed elsewhere."
        }
        413 => "The body is too large.",
        415 => "The body is neither YAML nor JSON.",
        422 => {
            "Nothing was changed, because there are mistakes in the definitions or in the request. The first 100 are listed."
        }
        503 => "The driver cannot process the request now.",
        _ => "Refused.",
    }
}
