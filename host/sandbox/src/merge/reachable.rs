use std::collections::{HashMap, HashSet};

use wasmparser::{ConstExpr, ElementItems, Operator, TableInit};

use super::{Item, Kind, core_module::CoreModule};

/// Finds the functions of merged modules that can be called. Libraries export far more than are used.
pub(super) fn find_reachable(
    core_modules: &[(usize, &CoreModule<'_>)],
    exports: &[(Kind, Item)],
) -> Option<HashSet<Item>> {
    let functions = exports.iter().filter(|(kind, _)| *kind == Kind::Function);
    let mut open: Vec<_> = functions.map(|(_, item)| *item).collect();
    for (number, core_module) in core_modules {
        for segment in &core_module.elements {
            match &segment.items {
                ElementItems::Functions(section) => {
                    for index in section.clone() {
                        open.push(core_module.item(*number, Kind::Function, index.ok()?)?);
                    }
                }
                ElementItems::Expressions(_, section) => {
                    for expression in section.clone() {
                        add_references(&mut open, *number, core_module, &expression.ok()?)?;
                    }
                }
            }
        }
        for global in &core_module.globals {
            add_references(&mut open, *number, core_module, &global.init_expr)?;
        }
        for table in &core_module.tables {
            if let TableInit::Expr(expression) = &table.init {
                add_references(&mut open, *number, core_module, expression)?;
            }
        }
    }
    let core_modules: HashMap<_, _> = core_modules.iter().copied().collect();
    let mut reached = HashSet::new();
    while let Some(item) = open.pop() {
        let Item::Defined {
            core_module: number,
            definition,
        } = item
        else {
            continue;
        };
        // The function belongs to a module of another level, such as one that is instantiated earlier. That module is
        // not merged with these modules, so the calls of its functions do not matter here.
        let Some(core_module) = core_modules.get(&number) else {
            continue;
        };
        if !reached.insert(item) {
            continue;
        }
        let body = core_module.bodies.get(definition as usize)?;
        for operator in body.get_operators_reader().ok()? {
            if let Operator::Call { function_index } | Operator::ReturnCall { function_index } = operator.ok()? {
                let called = core_module.item(number, Kind::Function, function_index)?;
                if !reached.contains(&called) {
                    open.push(called);
                }
            }
        }
    }
    Some(reached)
}

fn add_references(
    functions: &mut Vec<Item>,
    number: usize,
    core_module: &CoreModule<'_>,
    expression: &ConstExpr<'_>,
) -> Option<()> {
    for operator in expression.get_operators_reader() {
        if let Operator::RefFunc { function_index } = operator.ok()? {
            functions.push(core_module.item(number, Kind::Function, function_index)?);
        }
    }
    Some(())
}
