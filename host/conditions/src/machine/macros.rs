//! Evaluates macros: `all`, `exists`, `map`, `filter`, `optMap` and the like.

use super::{Fault, Machine, Outcome};
use crate::{
    expression::{Each, EachKind, WithValue},
    value::Value,
};

impl<'a> Machine<'a> {
    #[inline(never)]
    pub(super) fn each(&mut self, each: &'a Each) -> Outcome<'a> {
        let range = self.evaluate(&each.range)?;
        self.charge(1)?;
        match range {
            Value::List(list) => self.each_of(each, list.iter()),
            Value::Map(map) => self.each_of(each, map.keys()),
            _ => Err(Fault::no_overload()),
        }
    }

    fn each_of(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let slot = self.locals.len();
        let outcome = match each.kind {
            EachKind::All => self.until(each, range, false),
            EachKind::Exists => self.until(each, range, true),
            EachKind::ExistsOne => self.exactly_one(each, range),
            EachKind::Map | EachKind::Filter => self.collect(each, range),
        };
        self.locals.truncate(slot);
        outcome
    }

    /// `all` and `exists`: the first item whose test is `decisive` decides, also when others fail.
    fn until(
        &mut self,
        each: &'a Each,
        range: impl Iterator<Item = Value<'a>>,
        decisive: bool,
    ) -> Outcome<'a> {
        let mut failed = None;
        for item in range {
            match self.test(each, item)? {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) => Err(Fault::Error(error)),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn exactly_one(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let mut found = 0_usize;
        for item in range {
            if self.test(each, item)?.map_err(Fault::Error)? {
                found += 1;
            }
        }
        Ok(Value::Bool(found == 1))
    }

    fn collect(&mut self, each: &'a Each, range: impl Iterator<Item = Value<'a>>) -> Outcome<'a> {
        let mut values = Vec::new();
        for item in range {
            if !self.test(each, item.clone())?.map_err(Fault::Error)? {
                continue;
            }
            // The cost of a list with one item, and of its concatenation.
            self.charge(12)?;
            values.push(match &each.result {
                Some(result) => self.evaluate(result)?,
                None => item,
            });
        }
        Ok(Value::list(values))
    }

    /// Binds the item and tests it; without a test, the result is true.
    fn test(&mut self, each: &'a Each, item: Value<'a>) -> Result<Result<bool, String>, Fault> {
        // The cost of a step in addition to its test: reading and writing the accumulator.
        self.charge(2)?;
        self.bind(each, item);
        match &each.test {
            Some(test) => self.truth(test),
            None => Ok(Ok(true)),
        }
    }

    fn bind(&mut self, each: &'a Each, item: Value<'a>) {
        // Replaces the previous item, which comes after all outer variables.
        self.locals.truncate(each.slot);
        self.locals.push(item);
    }

    #[inline(never)]
    pub(super) fn with_value(&mut self, with: &'a WithValue) -> Outcome<'a> {
        let operand = self.evaluate(&with.operand)?;
        self.charge(1)?;
        let Value::Optional(inner) = operand else {
            return Err(Fault::no_overload());
        };
        let Some(inner) = inner else {
            return Ok(Value::Optional(None));
        };
        let slot = self.locals.len();
        self.locals.push((*inner).clone());
        let outcome = self.evaluate(&with.body);
        self.locals.truncate(slot);
        match outcome? {
            value @ Value::Optional(_) if with.flat => Ok(value),
            _ if with.flat => Err(Fault::no_overload()),
            value => Ok(Value::some(value)),
        }
    }
}
