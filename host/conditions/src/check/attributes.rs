//! Checks the variables, field selections and indexes in expressions.

use cel::common::ast::{Expr, IdedExpr};

use super::{Checker, MAX_DEPTH, TypeMistake, TypedResult, fail, suggestion_suffix};
use crate::{
    expression::{CelVariable, Expression, IndexExpression, Select},
    functions::{Style, find},
    types::{AUTHORIZER, JSON_PATCH, RESOURCE_CHECK, RecordType, Type, join, optional},
    value::Value,
};

impl Checker<'_> {
    pub(super) fn check_identifier(&mut self, node: u64, name: &str) -> TypedResult {
        let global = name.strip_prefix('.');
        if let (None, Some((index, kind))) = (global, self.find_local(name)) {
            return Ok((Expression::Local(index), kind.clone()));
        }
        let name = global.unwrap_or(name);
        let type_or_dyn = |kind: &Option<Type>| kind.clone().unwrap_or(Type::Dyn);
        let (variable, kind) = match name {
            "object" => (CelVariable::Object, type_or_dyn(&self.scope.object)),
            "oldObject" => (CelVariable::OldObject, type_or_dyn(&self.scope.object)),
            "request" => {
                self.uses.request = true;
                (CelVariable::Request, Type::Record(RecordType::Request))
            }
            "namespaceObject" => {
                self.uses.namespace = true;
                (CelVariable::NamespaceObject, Type::Record(RecordType::Namespace))
            }
            "params" if self.scope.has_params => (CelVariable::Params, type_or_dyn(&self.scope.params_type)),
            "authorizer" => {
                self.uses.authorizer = true;
                (CelVariable::Authorizer, AUTHORIZER)
            }
            "exceptions" if self.scope.kyverno.is_some() => {
                self.uses.exceptions = true;
                (CelVariable::Exceptions, Type::Record(RecordType::Exceptions))
            }
            _ => {
                return match type_named(name) {
                    Some(name) => Ok((Expression::Constant(Value::Type(name)), Type::Kind)),
                    None => fail(node, self.undeclared_message(name)),
                };
            }
        };
        Ok((Expression::Variable(variable), kind))
    }

    fn undeclared_message(&self, name: &str) -> String {
        let more = match (&self.scope.variables, self.scope.has_params) {
            (Some(_), true) => ", params and variables",
            (Some(_), false) => " and variables",
            (None, _) => "",
        };
        let and = if more.is_empty() { " and" } else { "," };
        format!(
            "undeclared reference to '{name}': an expression can use object, oldObject, request, authorizer{and} \
             namespaceObject{more} here"
        )
    }

    fn check_composed(&mut self, node: u64, name: &str) -> Option<TypedResult> {
        let variables = self.scope.variables.as_ref()?;
        let entry = variables
            .iter()
            .enumerate()
            .find(|(_, definition)| *definition.name == *name);
        let Some((index, variable_definition)) = entry else {
            let message = format!(
                "undefined field '{name}': no variable of this name is defined before this expression{}",
                suggestion_suffix(name, variables.iter().map(|variable| &variable.name))
            );
            return Some(fail(node, message));
        };
        // A variable is evaluated at its first use, which may be here. Its expression is then evaluated in the middle
        // of the current expression, so the depths of both are added.
        let height = self.depth + variable_definition.height;
        if height > MAX_DEPTH {
            return Some(Err(TypeMistake::TooDeep { limit: MAX_DEPTH }));
        }
        self.height = self.height.max(height);
        Some(Ok((Expression::Composed(index), variable_definition.kind.clone())))
    }

    /// Returns whether the node is the global variable `global_name`, and not a macro's variable with that name.
    pub(super) fn is_global(&self, node: &IdedExpr, global_name: &str) -> bool {
        matches!(&node.expr, Expr::Ident(name) if name == global_name) && self.find_local(global_name).is_none()
    }

    pub(super) fn check_select(
        &mut self,
        node: u64,
        operand: &IdedExpr,
        field: &str,
        optional_select: bool,
    ) -> TypedResult {
        if !optional_select && field == "requestResource" && self.is_global(operand, "authorizer") {
            self.uses.authorizer = true;
            return Ok((Expression::Variable(CelVariable::RequestResource), RESOURCE_CHECK));
        }
        if self.is_global(operand, "variables")
            && let Some(typed) = self.check_composed(node, field)
        {
            let (expression, kind) = typed?;
            return Ok(if optional_select {
                let none = find("optional.of", Style::Global);
                let call = none.map(|constructor| Expression::Call(constructor, [expression].into()));
                (call.unwrap_or(Expression::Constant(Value::Null)), optional(kind))
            } else {
                (expression, kind)
            });
        }
        if let Some(name) = self.find_qualified_type(operand, field) {
            return Ok((Expression::Constant(Value::Type(name)), Type::Kind));
        }
        let (operand, kind) = self.check(operand)?;
        let mut field_kind = field_type(node, &kind, field)?;
        if optional_select && !matches!(field_kind, Type::Optional(_)) {
            field_kind = optional(field_kind);
        }
        let select = Select {
            operand,
            field: field.into(),
            is_optional: optional_select,
        };
        Ok((Expression::Select(Box::new(select)), field_kind))
    }

    pub(super) fn check_has(&mut self, node: u64, only: &IdedExpr) -> TypedResult {
        let (operand, field) = match &only.expr {
            Expr::Select(select) => (&select.operand, &select.field),
            _ => {
                return fail(
                    node,
                    "invalid argument to has() macro: name a field, as in has(object.spec)",
                );
            }
        };
        if self.is_global(operand, "variables")
            && let Some(typed) = self.check_composed(only.id, field)
        {
            typed?;
            return Ok((Expression::Constant(Value::Bool(true)), Type::Bool));
        }
        let (operand, kind) = self.check(operand)?;
        field_type(only.id, &kind, field)?;
        let select = Select {
            operand,
            field: field.as_str().into(),
            is_optional: false,
        };
        Ok((Expression::Has(Box::new(select)), Type::Bool))
    }

    pub(super) fn check_index(
        &mut self,
        node: u64,
        operand: &IdedExpr,
        key: &IdedExpr,
        optional_index: bool,
    ) -> TypedResult {
        let (operand, kind) = self.check(operand)?;
        let (key, key_kind) = self.check(key)?;
        let (inner, is_optional) = match &kind {
            Type::Optional(inner) => (inner.as_ref(), true),
            kind => (kind, optional_index),
        };
        let item = match (inner, &key_kind) {
            (Type::Dyn | Type::Free, _) => Some(Type::Dyn),
            (Type::List(item), Type::Int | Type::Dyn | Type::Free) => Some(item.as_ref().clone()),
            (Type::Map(wanted, value), given) => join(wanted, given).map(|_| value.as_ref().clone()),
            _ => None,
        };
        let Some(item) = item else {
            return fail(
                node,
                format!("found no matching overload for '_[_]' applied to '({kind}, {key_kind})'"),
            );
        };
        let index = IndexExpression {
            operand,
            index: key,
            is_optional: optional_index,
        };
        Ok((
            Expression::Index(Box::new(index)),
            if is_optional { optional(item) } else { item },
        ))
    }
}

pub(super) fn json_patch_field_type(field: &str) -> Option<Type> {
    match field {
        "op" | "path" | "from" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => None,
    }
}

/// Returns `name` if it is the name of a basic CEL type. An expression can use such a name as a value, as in
/// `type(x) == int`. Returns `None` for other names.
fn type_named(name: &str) -> Option<&'static str> {
    "bool int uint double string bytes list map null_type type optional_type"
        .split(' ')
        .find(|type_name| *type_name == name)
}

fn field_type(node: u64, owner: &Type, field: &str) -> Result<Type, TypeMistake> {
    match owner {
        Type::Dyn | Type::Free | Type::Part(_) => Ok(Type::Dyn),
        Type::Map(_, value) => Ok(value.as_ref().clone()),
        Type::Optional(inner) => match field_type(node, inner, field)? {
            kind @ Type::Optional(_) => Ok(kind),
            kind => Ok(optional(kind)),
        },
        Type::Record(record) => match record.field(field) {
            Some(kind) => Ok(kind),
            None => no_such_field(node, owner, field, ""),
        },
        Type::SchemaObject(declared) => match declared.fields.get(field) {
            Some(kind) => Ok(kind.clone()),
            None => no_such_field(node, owner, field, &suggestion_suffix(field, declared.fields.keys())),
        },
        patch if *patch == JSON_PATCH => match json_patch_field_type(field) {
            Some(kind) => Ok(kind),
            None => no_such_field(node, owner, field, ""),
        },
        other => fail(
            node,
            format!("type '{other}' does not support field selection: it has no field '{field}'"),
        ),
    }
}

fn no_such_field(node: u64, owner: &Type, field: &str, suffix: &str) -> Result<Type, TypeMistake> {
    let message = format!("undefined field '{field}': {owner} has no such field{suffix}");
    fail(node, message)
}
