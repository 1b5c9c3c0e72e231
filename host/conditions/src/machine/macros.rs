//! Evaluates macros, such as `all`, `exists`, `map`, `filter` and `optMap`.

use super::{Fault, Machine, Outcome, key_text};
use crate::{
    expression::{Comprehension, ComprehensionKind, WithValue},
    functions::collections::sort_by_keys,
    value::Value,
};

type BoundItem<'a> = (Value<'a>, Option<Value<'a>>);

impl<'a> Machine<'a> {
    #[inline(never)]
    pub(super) fn evaluate_comprehension(&mut self, each: &'a Comprehension) -> Outcome<'a> {
        let range = self.evaluate(&each.range)?;
        self.charge(1)?;
        let indexes = (0..).map(Value::Int);
        match (range, each.binds_pairs) {
            (Value::List(list), false) => self.evaluate_items(each, list.iter().map(|item| (item, None))),
            (Value::List(list), true) => self.evaluate_items(each, indexes.zip(list.iter().map(Some))),
            (Value::Map(map), false) => self.evaluate_items(each, map.keys().map(|key| (key, None))),
            (Value::Map(map), true) => self.evaluate_items(each, map.entries().map(|(key, value)| (key, Some(value)))),
            _ => Err(Fault::no_overload()),
        }
    }

    fn evaluate_items(&mut self, each: &'a Comprehension, range: impl Iterator<Item = BoundItem<'a>>) -> Outcome<'a> {
        let slot = self.locals.len();
        let outcome = match each.kind {
            ComprehensionKind::All => self.quantify(each, range, false),
            ComprehensionKind::Exists => self.quantify(each, range, true),
            ComprehensionKind::ExistsOne => self.exactly_one(each, range),
            ComprehensionKind::Map | ComprehensionKind::Filter => self.collect(each, range),
            ComprehensionKind::TransformMap | ComprehensionKind::TransformMapEntry => self.collect_map(each, range),
            ComprehensionKind::SortBy => self.sort_by(each, range),
        };
        self.locals.truncate(slot);
        outcome
    }

    /// Evaluates `all` or `exists`. If the test of one item has the value `decisive` (false for `all`, true for
    /// `exists`), this is the result, even if the tests of other items fail.
    fn quantify(
        &mut self,
        each: &'a Comprehension,
        range: impl Iterator<Item = BoundItem<'a>>,
        decisive: bool,
    ) -> Outcome<'a> {
        let mut first_error = None;
        for item in range {
            match self.test(each, item)? {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) => Err(Fault::Error(error)),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn exactly_one(&mut self, each: &'a Comprehension, range: impl Iterator<Item = BoundItem<'a>>) -> Outcome<'a> {
        let mut match_count = 0_usize;
        for item in range {
            if self.test(each, item)?.map_err(Fault::Error)? {
                match_count += 1;
            }
        }
        Ok(Value::Bool(match_count == 1))
    }

    fn collect(&mut self, each: &'a Comprehension, range: impl Iterator<Item = BoundItem<'a>>) -> Outcome<'a> {
        let mut values = Vec::new();
        for item in range {
            let (first, _) = item.clone();
            if !self.test(each, item)?.map_err(Fault::Error)? {
                continue;
            }
            // kube-apiserver creates a list of one item, and appends this list to the result. Both together cost 12.
            self.charge(12)?;
            values.push(match &each.result {
                Some(result) => self.evaluate(result)?,
                None => first,
            });
        }
        Ok(Value::list(values))
    }

    fn collect_map(&mut self, each: &'a Comprehension, range: impl Iterator<Item = BoundItem<'a>>) -> Outcome<'a> {
        self.charge(30)?;
        let mut entries: Vec<(Value<'a>, Value<'a>)> = Vec::new();
        for item in range {
            let (key, _) = item.clone();
            if !self.test(each, item)?.map_err(Fault::Error)? {
                continue;
            }
            let Some(result) = &each.result else {
                return Err(Fault::no_overload());
            };
            self.charge(2)?;
            let result = self.evaluate(result)?;
            match (each.kind, result) {
                (ComprehensionKind::TransformMapEntry, Value::Map(map)) => {
                    for (key, value) in map.entries() {
                        self.charge_items(entries.len() + 1)?;
                        if entries.iter().any(|(other, _)| other.same_scalar(&key)) {
                            return Err(Fault::error(format!(
                                "insert failed: key {} already exists",
                                key_text(&key)
                            )));
                        }
                        entries.push((key, value));
                    }
                }
                (ComprehensionKind::TransformMapEntry, _) => return Err(Fault::no_overload()),
                // The key is from the old map, or is an index in the list. No key or index occurs twice in the loop, so
                // the new map gets no duplicate keys.
                (_, result) => entries.push((key, result)),
            }
        }
        Ok(Value::map(entries))
    }

    fn sort_by(&mut self, each: &'a Comprehension, range: impl Iterator<Item = BoundItem<'a>>) -> Outcome<'a> {
        let (mut items, mut keys) = (Vec::new(), Vec::new());
        for item in range {
            let (first, _) = item.clone();
            self.charge(14)?;
            self.bind(each, item);
            let Some(key) = &each.result else {
                return Err(Fault::no_overload());
            };
            keys.push(self.evaluate(key)?);
            items.push(first);
        }
        Ok(Value::list(sort_by_keys(self, items, &keys)?))
    }

    /// Binds an item to the macro's variables, and evaluates the macro's test. Without a test, the result is true.
    fn test(&mut self, each: &'a Comprehension, item: BoundItem<'a>) -> Result<Result<bool, String>, Fault> {
        // In kube-apiserver, a macro is a loop that reads and writes a variable for its result, which costs 2 per item.
        self.charge(2)?;
        self.bind(each, item);
        match &each.test {
            Some(test) => self.evaluate_truth(test),
            None => Ok(Ok(true)),
        }
    }

    fn bind(&mut self, each: &'a Comprehension, item: BoundItem<'a>) {
        // The end of the list `locals` may still have this macro's variables with the previous item. They are removed
        // before the next item is bound. The variables of enclosing macros come before them in the list and stay there.
        self.locals.truncate(each.slot);
        let (first, second) = item;
        self.locals.push(first);
        self.locals.extend(second);
    }

    #[inline(never)]
    pub(super) fn evaluate_optional_map(&mut self, with: &'a WithValue) -> Outcome<'a> {
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
            value @ Value::Optional(_) if with.is_flat => Ok(value),
            _ if with.is_flat => Err(Fault::no_overload()),
            value => Ok(Value::some(value)),
        }
    }
}
