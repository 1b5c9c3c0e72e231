//! Checks object literals such as `Type{field: value}`, and type names that contain dots.

use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, StructExpr};
use serde_json::Value as Json;

use super::{Checker, TypeMistake, TypedResult, attributes::json_patch_field_type, fail, without_optional};
use crate::{
    Structure,
    expression::{Expression, ListItem, MapEntry},
    functions::{Style, find},
    types::{JSON_PATCH, Type, join, list, map},
    value::{CelText, Map, Value},
};

/// The type names with dots that may occur in expressions.
const QUALIFIED_TYPES: [&str; 9] = [
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.NamedFormat",
    "kubernetes.Semver",
    "kubernetes.authorization.Decision",
];

/// The type name of an object that a mutation applies.
const OBJECT_TYPE: &str = "Object";

struct CheckedField<'a> {
    node_id: u64,
    name: &'a str,
    value: Expression,
    kind: Type,
    is_optional: bool,
}

#[derive(Debug)]
pub(crate) enum SetValue {
    Field {
        /// The path of the object that has the field, such as `Object.spec`.
        path: Box<str>,
        name: Box<str>,
        kind: Type,
    },
    Path {
        path: Box<str>,
        value: Json,
    },
}

impl SetValue {
    pub(crate) fn misfit(&self, structure: Option<&Structure>) -> Option<String> {
        match self {
            Self::Field { path, name, kind } => field_misfit(path, name, kind, structure),
            Self::Path { path, value } => structure?.patched_misfit(path, value),
        }
    }
}

fn field_misfit(path: &str, name: &str, kind: &Type, structure: Option<&Structure>) -> Option<String> {
    if let Type::Part(part_path) = innermost_item(kind)
        && **part_path != format!("{path}.{name}")
    {
        return Some(format!("{path}.{name} has the type of its path, and not {part_path}"));
    }
    let structure = structure?;
    if !structure.has_field(path, name) {
        return Some(format!("{path} has no field {name:?}"));
    }
    structure.field_refusal(path, name, &sample_value(kind)?)
}

/// Returns the path and the value that an operation of a JSON Patch sets. Parts of the value that are not literals are
/// unknown before the evaluation, so they are null here.
fn set_path(fields: &[CheckedField<'_>]) -> Option<SetValue> {
    let field = |name: &str| fields.iter().find(|field| field.name == name);
    let literal = |name: &str| match &field(name)?.value {
        Expression::Constant(Value::String(text)) => Some(&**text),
        _ => None,
    };
    let value = match literal("op")? {
        "add" | "replace" => field("value").map_or(Json::Null, |field| known_json(&field.value, &field.kind)),
        "copy" | "move" => Json::Null,
        _ => return None,
    };
    Some(SetValue::Path {
        path: literal("path")?.into(),
        value,
    })
}

fn known_json(value: &Expression, kind: &Type) -> Json {
    match value {
        Expression::Constant(Value::String(text)) => (**text).into(),
        Expression::Constant(Value::Int(number)) => (*number).into(),
        Expression::Map(entries) => entries
            .iter()
            .filter_map(|entry| match &entry.key {
                Expression::Constant(Value::String(key)) => {
                    Some((key.to_string(), known_json(&entry.value, &Type::Dyn)))
                }
                _ => None,
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Expression::List(items) => {
            let item = |item: &ListItem| known_json(&item.value, &Type::Dyn);
            items.iter().map(item).collect()
        }
        // An object literal is represented by an empty object here. Its fields are checked separately: there is a
        // `SetValue::Field` for each of them.
        Expression::Part(..) => serde_json::Map::new().into(),
        Expression::Constant(Value::Bool(value)) => (*value).into(),
        _ => sample_value(kind).unwrap_or_default(),
    }
}

/// Returns the type of the items of a list, or of the innermost items if lists are nested. A type that is not a list is
/// returned unchanged.
fn innermost_item(kind: &Type) -> &Type {
    match kind {
        Type::List(items) => innermost_item(items),
        kind => kind,
    }
}

fn sample_value(kind: &Type) -> Option<Json> {
    Some(match kind {
        Type::Bool => true.into(),
        // Every number has the sample 1. A double without a fraction may be set in an integer field, and 1 fits both a
        // field for doubles and a field for integers.
        Type::Int | Type::Uint | Type::Double => 1.into(),
        Type::String => "".into(),
        Type::Map(..) | Type::Part(_) => serde_json::Map::new().into(),
        Type::List(items) => sample_value(items)
            .filter(|item| !item.is_object())
            .into_iter()
            .collect(),
        _ => return None,
    })
}

impl Checker<'_> {
    pub(super) fn find_qualified_type(&self, operand: &IdedExpr, field: &str) -> Option<&'static str> {
        let name = format!("{}.{field}", self.dotted_name(operand)?);
        QUALIFIED_TYPES
            .into_iter()
            .find(|qualified_name| **qualified_name == name)
    }

    fn dotted_name(&self, node: &IdedExpr) -> Option<String> {
        match &node.expr {
            Expr::Ident(name) if self.find_local(name).is_none() => Some(name.clone()),
            Expr::Select(select) => Some(format!("{}.{}", self.dotted_name(&select.operand)?, select.field)),
            _ => None,
        }
    }

    pub(super) fn check_object(&mut self, node_id: u64, object: &StructExpr) -> TypedResult {
        let name = object.type_name.strip_prefix('.').unwrap_or(&object.type_name);
        let is_part = name == OBJECT_TYPE || name.strip_prefix(OBJECT_TYPE).is_some_and(|rest| rest.starts_with('.'));
        if self.scope.mutates && is_part {
            let fields = self.object_fields(object, |_, _| Ok(None))?;
            self.set_values.extend(fields.iter().map(|field| SetValue::Field {
                path: name.into(),
                name: field.name.into(),
                kind: field.kind.clone(),
            }));
            return Ok((part_expression(name, fields), Type::Part(name.into())));
        }
        if self.scope.mutates && name == "JSONPatch" {
            let fields = self.object_fields(object, |node, field| match json_patch_field_type(field) {
                Some(kind) => Ok(Some(kind)),
                None => fail(
                    node,
                    format!("undefined field '{field}': JSONPatch has op, path, from and value"),
                ),
            })?;
            self.set_values.extend(set_path(&fields));
            return Ok((part_expression(name, fields), JSON_PATCH));
        }
        match name.strip_prefix("google.protobuf.") {
            Some(name) => self.check_well_known(node_id, name, object),
            None => fail(
                node_id,
                format!("undeclared reference to '{name}': objects of this type cannot be made here"),
            ),
        }
    }

    /// Checks the fields of an object literal. `field_type` returns the type that a field must have; `None` for any
    /// type.
    fn object_fields<'a>(
        &mut self,
        object: &'a StructExpr,
        field_type: impl Fn(u64, &str) -> Result<Option<Type>, TypeMistake>,
    ) -> Result<Vec<CheckedField<'a>>, TypeMistake> {
        let mut fields: Vec<CheckedField<'a>> = Vec::with_capacity(object.entries.len());
        for entry in &object.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                return fail(entry.id, "this cannot be read");
            };
            if fields.iter().any(|other| other.name == field.field) {
                return fail(entry.id, format!("field '{}' is set twice", field.field));
            }
            let expected_type = field_type(entry.id, &field.field)?;
            let (value, kind) = self.check(&field.value)?;
            let kind = without_optional(field.value.id, kind, field.optional)?;
            if let Some(expected) = expected_type
                && join(&expected, &kind).is_none()
            {
                return fail(
                    field.value.id,
                    format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{kind}'",
                        field.field
                    ),
                );
            }
            fields.push(CheckedField {
                node_id: entry.id,
                name: &field.field,
                value,
                kind,
                is_optional: field.optional,
            });
        }
        Ok(fields)
    }

    /// Checks a literal of a well-known protobuf type, such as `Timestamp`. CEL converts it to a plain value.
    fn check_well_known(&mut self, node_id: u64, name: &str, object: &StructExpr) -> TypedResult {
        let wrapper = |kind: Type| (kind.clone(), vec![("value", kind)]);
        let moment_fields = || vec![("seconds", Type::Int), ("nanos", Type::Int)];
        let string_map = || map(Type::String, Type::Dyn);
        let (kind, declared_fields) = match name {
            "BoolValue" => wrapper(Type::Bool),
            "BytesValue" => wrapper(Type::Bytes),
            "DoubleValue" | "FloatValue" => wrapper(Type::Double),
            "Int32Value" | "Int64Value" => wrapper(Type::Int),
            "UInt32Value" | "UInt64Value" => wrapper(Type::Uint),
            "StringValue" => wrapper(Type::String),
            "Duration" => (Type::Duration, moment_fields()),
            "Timestamp" => (Type::Timestamp, moment_fields()),
            "Struct" => (string_map(), vec![("fields", string_map())]),
            "ListValue" => (list(Type::Dyn), vec![("values", list(Type::Dyn))]),
            "Value" => (
                Type::Dyn,
                vec![
                    ("null_value", Type::Dyn),
                    ("number_value", Type::Double),
                    ("string_value", Type::String),
                    ("bool_value", Type::Bool),
                    ("struct_value", string_map()),
                    ("list_value", list(Type::Dyn)),
                ],
            ),
            _ => {
                return fail(
                    node_id,
                    format!(
                        "undeclared reference to 'google.protobuf.{name}': objects of this type cannot be made here"
                    ),
                );
            }
        };
        let mut fields = self.object_fields(object, |node, field| {
            match declared_fields
                .iter()
                .find(|(declared_name, _)| *declared_name == field)
            {
                Some((_, kind)) => Ok(Some(kind.clone())),
                None => fail(
                    node,
                    format!("undefined field '{field}': google.protobuf.{name} has no such field"),
                ),
            }
        })?;
        if let Some(field) = fields.iter().find(|field| field.is_optional) {
            return fail(field.node_id, "an optional field cannot be set here");
        }
        let constructor = match kind {
            Type::Duration => find("@duration", Style::Global),
            Type::Timestamp => find("@timestamp", Style::Global),
            _ => None,
        };
        let Some(constructor) = constructor else {
            let is_null_value = name == "Value" && fields.iter().any(|field| field.name == "null_value");
            let field_value = fields.pop().map(|field| field.value);
            let value = field_value
                .filter(|_| !is_null_value)
                .unwrap_or_else(|| Expression::Constant(zero_value(&kind)));
            return Ok((value, kind));
        };
        let mut arguments = [Expression::Constant(Value::Int(0)), Expression::Constant(Value::Int(0))];
        for field in fields {
            if let Some(argument) = arguments.get_mut(usize::from(field.name == "nanos")) {
                *argument = field.value;
            }
        }
        Ok((Expression::Call(constructor, arguments.into()), kind))
    }
}

fn part_expression(path: &str, fields: Vec<CheckedField<'_>>) -> Expression {
    let entry = |field: CheckedField<'_>| MapEntry {
        key: Expression::Constant(Value::string(field.name)),
        value: field.value,
        is_optional: field.is_optional,
    };
    Expression::Part(path.into(), fields.into_iter().map(entry).collect())
}

fn zero_value(kind: &Type) -> Value<'static> {
    match kind {
        Type::Bool => Value::Bool(false),
        Type::Bytes => Value::Bytes(Arc::from([])),
        Type::Double => Value::Double(0.0),
        Type::Int => Value::Int(0),
        Type::Uint => Value::Uint(0),
        Type::String => Value::String(CelText::Borrowed("")),
        Type::List(_) => Value::list(Vec::new()),
        Type::Map(..) => Value::Map(Map::Shared(Arc::from([]))),
        _ => Value::Null,
    }
}
