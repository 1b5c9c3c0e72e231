use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead};

/// Calls `visit` for every query of the module: the bodies of its rules and of its comprehensions.
pub(crate) fn queries(module: &Module, visit: &mut dyn FnMut(&Query)) {
    each(module, &mut |part| {
        if let WalkPart::Query(query) = part {
            visit(query);
        }
    });
}

pub(crate) fn expressions(module: &Module, visit: &mut dyn FnMut(&Expr)) {
    each(module, &mut |part| {
        if let WalkPart::Expression(expression) = part {
            visit(expression);
        }
    });
}

pub(crate) fn of_rule(rule: &Rule, visit: &mut dyn FnMut(&Expr)) {
    each_of_rule(rule, &mut |part| {
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

fn each(module: &Module, visit: &mut Visit<'_>) {
    for rule in &module.policy {
        each_of_rule(rule, visit);
    }
}

fn each_of_rule(rule: &Rule, visit: &mut Visit<'_>) {
    match rule {
        Rule::Spec { head, bodies, .. } => {
            match head {
                RuleHead::Compr { refr, assign, .. } => {
                    of_expression(refr, visit);
                    of_assignment(assign.as_ref(), visit);
                }
                RuleHead::Set { refr, key, .. } => {
                    of_expression(refr, visit);
                    key.iter().for_each(|key| of_expression(key, visit));
                }
                RuleHead::Func { args, assign, .. } => {
                    args.iter().for_each(|argument| of_expression(argument, visit));
                    of_assignment(assign.as_ref(), visit);
                }
            }
            for body in bodies {
                of_assignment(body.assign.as_ref(), visit);
                of_query(&body.query, visit);
            }
        }
        Rule::Default { value, .. } => of_expression(value, visit),
    }
}

fn of_assignment(assignment: Option<&RuleAssign>, visit: &mut Visit<'_>) {
    if let Some(assignment) = assignment {
        of_expression(&assignment.value, visit);
    }
}

fn of_query(query: &Ref<Query>, visit: &mut Visit<'_>) {
    visit(WalkPart::Query(query));
    for statement in &query.stmts {
        for modifier in &statement.with_mods {
            of_expression(&modifier.r#as, visit);
        }
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => {
                key.iter().for_each(|key| of_expression(key, visit));
                of_expression(value, visit);
                of_expression(collection, visit);
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => of_expression(expr, visit),
            Literal::Every { domain, query, .. } => {
                of_expression(domain, visit);
                of_query(query, visit);
            }
        }
    }
}

fn of_expression(expression: &Ref<Expr>, visit: &mut Visit<'_>) {
    visit(WalkPart::Expression(expression));
    match &**expression {
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            items.iter().for_each(|item| of_expression(item, visit));
        }
        Expr::Object { fields, .. } => {
            for (_, key, value) in fields {
                of_expression(key, visit);
                of_expression(value, visit);
            }
        }
        Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
            of_expression(term, visit);
            of_query(query, visit);
        }
        Expr::ObjectCompr { key, value, query, .. } => {
            of_expression(key, visit);
            of_expression(value, visit);
            of_query(query, visit);
        }
        Expr::Call { params, .. } => params.iter().for_each(|parameter| of_expression(parameter, visit)),
        Expr::UnaryExpr { expr, .. } => of_expression(expr, visit),
        Expr::RefDot { refr, .. } => of_expression(refr, visit),
        Expr::RefBrack { refr, index, .. } => {
            of_expression(refr, visit);
            of_expression(index, visit);
        }
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => {
            of_expression(lhs, visit);
            of_expression(rhs, visit);
        }
        Expr::Membership {
            key, value, collection, ..
        } => {
            key.iter().for_each(|key| of_expression(key, visit));
            of_expression(value, visit);
            of_expression(collection, visit);
        }
        _ => {}
    }
}
