//! Checks macros, whose arguments may use the variables that the macro binds.

use cel::common::ast::{Expr, IdedExpr};

use super::{Checker, TypeMistake, TypedResult, fail};
use crate::{
    expression::{Comprehension, ComprehensionKind, Expression, IndexExpression, ListItem, WithValue},
    types::{Type, list, map, optional},
    value::Value,
};

/// The name of the variable in which kube-apiserver's macros accumulate their result. No macro may bind it.
const ACCUMULATOR: &str = "__result__";

struct MacroCall<'a> {
    kind: ComprehensionKind,
    variable: &'a IdedExpr,
    second_variable: Option<&'a IdedExpr>,
    test: Option<&'a IdedExpr>,
    result: Option<&'a IdedExpr>,
}

fn macro_arguments<'a>(name: &str, arguments: &'a [IdedExpr]) -> Option<MacroCall<'a>> {
    let quantifier = match name {
        "all" => Some(ComprehensionKind::All),
        "exists" => Some(ComprehensionKind::Exists),
        "exists_one" | "existsOne" => Some(ComprehensionKind::ExistsOne),
        _ => None,
    };
    let transform = match name {
        "transformList" => Some(ComprehensionKind::Map),
        "transformMap" => Some(ComprehensionKind::TransformMap),
        "transformMapEntry" => Some(ComprehensionKind::TransformMapEntry),
        _ => None,
    };
    let (kind, variable, second, test, result) = match (name, arguments) {
        ("map", [variable, result]) => (ComprehensionKind::Map, variable, None, None, Some(result)),
        ("map", [variable, test, result]) => (ComprehensionKind::Map, variable, None, Some(test), Some(result)),
        ("filter", [variable, test]) => (ComprehensionKind::Filter, variable, None, Some(test), None),
        ("sortBy", [variable, key]) => (ComprehensionKind::SortBy, variable, None, None, Some(key)),
        (_, [variable, test]) => (quantifier?, variable, None, Some(test), None),
        (_, [first, second, last]) => match quantifier {
            Some(kind) => (kind, first, Some(second), Some(last), None),
            None => (transform?, first, Some(second), None, Some(last)),
        },
        (_, [first, second, test, result]) => (transform?, first, Some(second), Some(test), Some(result)),
        _ => return None,
    };
    Some(MacroCall {
        kind,
        variable,
        second_variable: second,
        test,
        result,
    })
}

fn transformed_type(
    node: u64,
    kind: ComprehensionKind,
    item: Type,
    key: Type,
    result: Type,
) -> Result<Type, TypeMistake> {
    match (kind, result) {
        (ComprehensionKind::TransformMap, result) => Ok(map(key, result)),
        (ComprehensionKind::TransformMapEntry, result @ (Type::Map(..) | Type::Dyn | Type::Free)) => Ok(result),
        (ComprehensionKind::TransformMapEntry, other) => fail(
            node,
            format!(
                "found no matching overload for 'cel.@mapInsert': transformMapEntry must give a map but gives '{other}'"
            ),
        ),
        (
            ComprehensionKind::SortBy,
            Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::Duration
            | Type::Timestamp
            | Type::String
            | Type::Bytes
            | Type::Dyn
            | Type::Free,
        ) => Ok(list(item)),
        (ComprehensionKind::SortBy, other) => fail(node, format!("sortBy cannot sort by a '{other}'")),
        (_, result) => Ok(list(result)),
    }
}

impl Checker<'_> {
    pub(super) fn check_macro_call(
        &mut self,
        node_id: u64,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Result<Option<(Expression, Type)>, TypeMistake> {
        let Some(call) = macro_arguments(name, arguments) else {
            return match (name, arguments) {
                ("optMap" | "optFlatMap", [variable, body]) => self
                    .check_optional_map(node_id, name == "optFlatMap", target, variable, body)
                    .map(Some),
                _ => Ok(None),
            };
        };
        let first = variable_name(call.variable)?;
        if call.kind == ComprehensionKind::SortBy
            && matches!(target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_))
        {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return fail(target.id, message);
        }
        let (range, range_kind) = self.check(target)?;
        let is_map = matches!(range_kind, Type::Map(..));
        let (key, value) = match range_kind {
            Type::Dyn | Type::Free => (Type::Dyn, Type::Dyn),
            Type::List(item) => (Type::Int, *item),
            Type::Map(key, value) => (*key, *value),
            other => {
                return fail(
                    target.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
            }
        };
        let item = if is_map { key.clone() } else { value.clone() };
        let slot = self.locals.len();
        match call.second_variable {
            None => self.locals.push((first.to_owned(), item.clone())),
            Some(second) => {
                let second_name = variable_name(second)?;
                if second_name == first {
                    return fail(second.id, format!("duplicate variable name: {first}"));
                }
                self.locals.push((first.to_owned(), key.clone()));
                self.locals.push((second_name.to_owned(), value));
            }
        }
        let test = call.test.map(|test| self.check_logical_side(name, test)).transpose()?;
        let result = call
            .result
            .map(|result| Ok((result.id, self.check(result)?)))
            .transpose()?;
        self.locals.truncate(slot);
        let (result, checked) = match result {
            Some((node, (result, kind))) => (Some(result), transformed_type(node, call.kind, item, key, kind)?),
            None if call.kind == ComprehensionKind::Filter => (None, list(item)),
            None => (None, Type::Bool),
        };
        let each = Comprehension {
            kind: call.kind,
            range,
            slot,
            binds_pairs: call.second_variable.is_some(),
            test,
            result,
        };
        Ok(Some((Expression::Each(Box::new(each)), checked)))
    }

    /// Checks Kyverno's `cel.bind(variable, value, body)`. It is compiled like `[value].map(variable, body)[0]`.
    pub(super) fn check_bind(&mut self, variable: &IdedExpr, value: &IdedExpr, body: &IdedExpr) -> TypedResult {
        let name = variable_name(variable)?;
        let (value, kind) = self.check(value)?;
        let slot = self.locals.len();
        self.locals.push((name.to_owned(), kind));
        let typed = self.check(body);
        self.locals.truncate(slot);
        let (result, kind) = typed?;
        let item = ListItem {
            value,
            is_optional: false,
        };
        let each = Comprehension {
            kind: ComprehensionKind::Map,
            range: Expression::List([item].into()),
            slot,
            binds_pairs: false,
            test: None,
            result: Some(result),
        };
        let index = IndexExpression {
            operand: Expression::Each(Box::new(each)),
            index: Expression::Constant(Value::Int(0)),
            is_optional: false,
        };
        Ok((Expression::Index(Box::new(index)), kind))
    }

    fn check_optional_map(
        &mut self,
        node: u64,
        flat: bool,
        target: &IdedExpr,
        variable: &IdedExpr,
        body: &IdedExpr,
    ) -> TypedResult {
        let variable = variable_name(variable)?;
        let (operand, kind) = self.check(target)?;
        let inner = match kind {
            Type::Optional(inner) => *inner,
            Type::Dyn | Type::Free | Type::Null => Type::Dyn,
            other => {
                return fail(
                    node,
                    format!("found no matching overload for 'optMap' applied to '{other}'"),
                );
            }
        };
        self.locals.push((variable.to_owned(), inner));
        let typed = self.check(body);
        self.locals.pop();
        let (body, kind) = typed?;
        let kind = match (flat, kind) {
            (false, kind) => optional(kind),
            (true, kind @ (Type::Optional(_) | Type::Dyn | Type::Free)) => kind,
            (true, other) => {
                return fail(
                    node,
                    format!("optFlatMap must give an optional value but gives '{other}'"),
                );
            }
        };
        let with = WithValue {
            operand,
            body,
            is_flat: flat,
        };
        Ok((Expression::WithValue(Box::new(with)), kind))
    }
}

fn variable_name(node: &IdedExpr) -> Result<&str, TypeMistake> {
    match &node.expr {
        Expr::Ident(name) if name == ACCUMULATOR => fail(node.id, "iteration variable overwrites accumulator variable"),
        Expr::Ident(name) if !name.starts_with('.') => Ok(name),
        _ => fail(node.id, "the first argument of a macro must be a simple name"),
    }
}
