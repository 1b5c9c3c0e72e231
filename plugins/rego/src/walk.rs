use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead};

/// Calls `visit` for every query of the module: the bodies of its rules and of its comprehensions.
pub(crate) fn visit_queries(module: &Module, visit: &mut dyn FnMut(&Query)) {
    walk_module(module, &mut |part| {
        if let WalkPart::Query(query) = part {
            visit(query);
        }
    });
}

pub(crate) fn visit_expressions(module: &Module, visit: &mut dyn FnMut(&Expr)) {
    walk_module(module, &mut |part| {
        if let WalkPart::Expression(expression) = part {
            visit(expression);
        }
    });
}

pub(crate) fn visit_rule_expressions(rule: &Rule, visit: &mut dyn FnMut(&Expr)) {
    walk_rule(rule, &mut |part| {
        if let WalkPart::Expression(expression) = part {
            visit(expression);
        }
    });
}

enum WalkPart<'a> {
    Query(&'a Query),
    Expression(&'a Expr),
}

type Visit<'v> = dyn FnMut(WalkPart<'_>) + 'v;

fn walk_module(module: &Module, visit: &mut Visit<'_>) {
    for rule in &module.policy {
        walk_rule(rule, visit);
    }
}

fn walk_rule(rule: &Rule, visit: &mut Visit<'_>) {
    match rule {
        Rule::Spec { head, bodies, .. } => {
            match head {
                RuleHead::Compr { refr, assign, .. } => {
                    walk_expression(refr, visit);
                    walk_assignment(assign.as_ref(), visit);
                }
                RuleHead::Set { refr, key, .. } => {
                    walk_expression(refr, visit);
                    key.iter().for_each(|key| walk_expression(key, visit));
                }
                RuleHead::Func { args, assign, .. } => {
                    args.iter().for_each(|argument| walk_expression(argument, visit));
                    walk_assignment(assign.as_ref(), visit);
                }
            }
            for body in bodies {
                walk_assignment(body.assign.as_ref(), visit);
                walk_query(&body.query, visit);
            }
        }
        Rule::Default { value, .. } => walk_expression(value, visit),
    }
}

fn walk_assignment(assignment: Option<&RuleAssign>, visit: &mut Visit<'_>) {
    if let Some(assignment) = assignment {
        walk_expression(&assignment.value, visit);
    }
}

fn walk_query(query: &Ref<Query>, visit: &mut Visit<'_>) {
    visit(WalkPart::Query(query));
    for statement in &query.stmts {
        for modifier in &statement.with_mods {
            walk_expression(&modifier.r#as, visit);
        }
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => {
                key.iter().for_each(|key| walk_expression(key, visit));
                walk_expression(value, visit);
                walk_expression(collection, visit);
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => walk_expression(expr, visit),
            Literal::Every { domain, query, .. } => {
                walk_expression(domain, visit);
                walk_query(query, visit);
            }
        }
    }
}

fn walk_expression(expression: &Ref<Expr>, visit: &mut Visit<'_>) {
    visit(WalkPart::Expression(expression));
    match &**expression {
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            items.iter().for_each(|item| walk_expression(item, visit));
        }
        Expr::Object { fields, .. } => {
            for (_, key, value) in fields {
                walk_expression(key, visit);
                walk_expression(value, visit);
            }
        }
        Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
            walk_expression(term, visit);
            walk_query(query, visit);
        }
        Expr::ObjectCompr { key, value, query, .. } => {
            walk_expression(key, visit);
            walk_expression(value, visit);
            walk_query(query, visit);
        }
        Expr::Call { params, .. } => params.iter().for_each(|parameter| walk_expression(parameter, visit)),
        Expr::UnaryExpr { expr, .. } => walk_expression(expr, visit),
        Expr::RefDot { refr, .. } => walk_expression(refr, visit),
        Expr::RefBrack { refr, index, .. } => {
            walk_expression(refr, visit);
            walk_expression(index, visit);
        }
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => {
            walk_expression(lhs, visit);
            walk_expression(rhs, visit);
        }
        Expr::Membership {
            key, value, collection, ..
        } => {
            key.iter().for_each(|key| walk_expression(key, visit));
            walk_expression(value, visit);
            walk_expression(collection, visit);
        }
        _ => {}
    }
}
