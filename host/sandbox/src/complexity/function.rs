//! Estimates the cost of compiling functions, which grows with the number of values that several blocks need.

use wasmparser::{BlockType, FunctionBody, Operator};

use super::{Limit, parse_error};
use crate::Error;

pub(super) const SIZE: Limit = Limit("bytes in one function", 4 << 20);
pub(super) const LOCALS: Limit = Limit("locals in one function", 10_000);
pub(super) const BRANCHES: Limit = Limit("branch targets in one function", 200_000);
pub(super) const VALUES: Limit = Limit("values passed to blocks, branches and calls in one function", 200_000);
pub(super) const MERGES: Limit = Limit("locals times loops in one function", 200_000);
pub(super) const ALL_VALUES: Limit = Limit("values passed to blocks, branches and calls", 5_000_000);
pub(super) const ALL_MERGES: Limit = Limit("locals times loops, summed over its functions", 5_000_000);

/// The number of parameters, and the number of results, of a function or block.
type Arity = (u32, u32);

#[derive(Default)]
pub(super) struct Types {
    declared: Vec<Arity>,
    functions: Vec<u32>,
    imported: usize,
    bodies: usize,
}

impl Types {
    pub(super) fn add_type(&mut self, params: usize, results: usize) {
        let count = |values| u32::try_from(values).unwrap_or(u32::MAX);
        self.declared.push((count(params), count(results)));
    }

    pub(super) fn add_import(&mut self, type_index: u32) {
        self.functions.push(type_index);
        self.imported += 1;
    }

    pub(super) fn add_function(&mut self, type_index: u32) {
        self.functions.push(type_index);
    }

    fn type_arity(&self, index: u32) -> Arity {
        self.declared.get(index as usize).copied().unwrap_or_default()
    }

    fn function_arity(&self, index: usize) -> Arity {
        self.functions
            .get(index)
            .map(|type_index| self.type_arity(*type_index))
            .unwrap_or_default()
    }

    fn block_arity(&self, block: BlockType) -> Arity {
        match block {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(index) => self.type_arity(index),
        }
    }
}

#[derive(Default)]
pub(super) struct Totals {
    values: u64,
    merges: u64,
}

impl Totals {
    pub(super) fn count_function(&mut self, body: &FunctionBody<'_>, types: &mut Types) -> Result<(), Error> {
        SIZE.check(body.range().len() as u64)?;
        let (params, results) = types.function_arity(types.imported + types.bodies);
        types.bodies += 1;
        let mut locals = u64::from(params);
        for local in body.get_locals_reader().map_err(parse_error)? {
            LOCALS.add_to_total(&mut locals, local.map_err(parse_error)?.0)?;
        }
        let mut function = FunctionCost {
            types,
            labels: vec![results],
            loops: 0,
            branches: 0,
            values: 0,
        };
        for operator in body.get_operators_reader().map_err(parse_error)? {
            function.count_operator(&operator.map_err(parse_error)?)?;
        }
        let merges = locals.saturating_mul(function.loops);
        MERGES.check(merges)?;
        ALL_MERGES.add_to_total(&mut self.merges, merges)?;
        ALL_VALUES.add_to_total(&mut self.values, function.values)
    }
}

struct FunctionCost<'a> {
    types: &'a Types,
    /// The blocks open at the current instruction. Each number says how many values a branch to the block carries.
    labels: Vec<u32>,
    loops: u64,
    branches: u64,
    values: u64,
}

impl FunctionCost<'_> {
    fn count_operator(&mut self, operator: &Operator<'_>) -> Result<(), Error> {
        match operator {
            Operator::Block { blockty } | Operator::If { blockty } => {
                let arity = self.types.block_arity(*blockty);
                self.labels.push(arity.1);
                self.count_values(arity)
            }
            Operator::Loop { blockty } => {
                let arity = self.types.block_arity(*blockty);
                self.labels.push(arity.0);
                self.loops += 1;
                self.count_values(arity)
            }
            Operator::End => {
                self.labels.pop();
                Ok(())
            }
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => self.count_branch(*relative_depth),
            Operator::BrTable { targets } => {
                for target in targets.targets() {
                    self.count_branch(target.map_err(parse_error)?)?;
                }
                self.count_branch(targets.default())
            }
            Operator::Return => {
                let results = self.labels.first().copied().unwrap_or_default();
                self.count_values((results, 0))
            }
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                self.count_values(self.types.function_arity(*function_index as usize))
            }
            Operator::CallIndirect { type_index, .. }
            | Operator::ReturnCallIndirect { type_index, .. }
            | Operator::CallRef { type_index }
            | Operator::ReturnCallRef { type_index } => self.count_values(self.types.type_arity(*type_index)),
            _ => Ok(()),
        }
    }

    fn count_branch(&mut self, depth: u32) -> Result<(), Error> {
        BRANCHES.add_to_total(&mut self.branches, 1_u32)?;
        let label = self.labels.iter().rev().nth(depth as usize);
        self.count_values((label.copied().unwrap_or_default(), 0))
    }

    fn count_values(&mut self, (params, results): Arity) -> Result<(), Error> {
        VALUES.add_to_total(&mut self.values, u64::from(params) + u64::from(results))
    }
}
