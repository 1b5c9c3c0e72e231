//! Checks macros, which bind a variable for their arguments.

use cel::common::ast::{Expr, IdedExpr};

use super::{Checker, Mistake, Typed, fail};
use crate::{
    expression::{Each, EachKind, Expression, WithValue},
    types::{Type, list, optional},
};

impl Checker {
    /// A macro; none for other calls.
    pub(super) fn macro_call(
        &mut self,
        node: u64,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Result<Option<(Expression, Type)>, Mistake> {
        let (variable, test, result) = match (name, arguments) {
            ("map", [variable, result]) => (variable, None, Some(result)),
            ("map", [variable, test, result]) => (variable, Some(test), Some(result)),
            ("all" | "exists" | "exists_one" | "existsOne" | "filter", [variable, test]) => {
                (variable, Some(test), None)
            }
            ("optMap" | "optFlatMap", [variable, body]) => {
                return self
                    .with_value(node, name == "optFlatMap", target, variable, body)
                    .map(Some);
            }
            _ => return Ok(None),
        };
        let kind = match name {
            "all" => EachKind::All,
            "exists" => EachKind::Exists,
            "map" => EachKind::Map,
            "filter" => EachKind::Filter,
            _ => EachKind::ExistsOne,
        };
        let variable = variable_name(variable)?;
        let (range, range_kind) = self.check(target)?;
        let item = match range_kind {
            Type::Dyn => Type::Dyn,
            Type::List(item) => *item,
            Type::Map(key, _) => *key,
            other => {
                return fail(
                    target.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
            }
        };
        let slot = self.locals.len();
        self.locals.push((variable.to_owned(), item.clone()));
        let test = test.map(|test| self.logical(name, test)).transpose()?;
        let result = result.map(|result| self.check(result)).transpose()?;
        self.locals.truncate(slot);
        let (result, checked) = match result {
            Some((result, kind)) => (Some(result), list(kind)),
            None if kind == EachKind::Filter => (None, list(item)),
            None => (None, Type::Bool),
        };
        let each = Each {
            kind,
            range,
            slot,
            test,
            result,
        };
        Ok(Some((Expression::Each(Box::new(each)), checked)))
    }

    fn with_value(
        &mut self,
        node: u64,
        flat: bool,
        target: &IdedExpr,
        variable: &IdedExpr,
        body: &IdedExpr,
    ) -> Typed {
        let variable = variable_name(variable)?;
        let (operand, kind) = self.check(target)?;
        let inner = match kind {
            Type::Optional(inner) => *inner,
            Type::Dyn => Type::Dyn,
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
            (true, kind @ (Type::Optional(_) | Type::Dyn)) => kind,
            (true, other) => {
                return fail(
                    node,
                    format!("optFlatMap must give an optional value but gives '{other}'"),
                );
            }
        };
        let with = WithValue { operand, body, flat };
        Ok((Expression::WithValue(Box::new(with)), kind))
    }
}

fn variable_name(node: &IdedExpr) -> Result<&str, Mistake> {
    match &node.expr {
        Expr::Ident(name) if !name.starts_with('.') => Ok(name),
        _ => fail(node.id, "the first argument of a macro must be a simple name"),
    }
}
