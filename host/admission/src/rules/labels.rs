use std::{collections::BTreeMap, fmt};

use crate::keywords;

/// The labels of an object or a namespace, by key.
pub type Labels = BTreeMap<String, String>;

/// Selects objects by their labels, like Kubernetes' `LabelSelector`: the labels must meet all requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

impl LabelSelector {
    /// Creates a selector of these requirements.
    pub fn new(requirements: Vec<LabelRequirement>) -> Self {
        Self { requirements }
    }

    /// Returns the key, operator and values of each requirement.
    pub fn requirements(&self) -> impl Iterator<Item = (&str, LabelOperator, &[String])> {
        self.requirements.iter().map(|LabelRequirement { key, test }| {
            let (operator, values) = match test {
                LabelCondition::In(values) => (LabelOperator::In, values.as_slice()),
                LabelCondition::NotIn(values) => (LabelOperator::NotIn, values.as_slice()),
                LabelCondition::Exists => (LabelOperator::Exists, [].as_slice()),
                LabelCondition::DoesNotExist => (LabelOperator::DoesNotExist, [].as_slice()),
            };
            (key.as_str(), operator, values)
        })
    }

    /// Returns whether the selector has no requirements, so that it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns a selector that selects an object if both this and the other selector select it.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.requirements.extend(other.requirements);
        self
    }

    /// Returns whether an object with these labels meets every requirement of the selector.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.is_met_by(labels))
    }
}

/// Writes the selector as in a query of the Kubernetes API: `app in (web),tier notin (a,b),!canary`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LabelRequirement { key, test }) in self.requirements.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match test {
                LabelCondition::In(values) => write!(f, "{key} in ({})", values.join(",")),
                LabelCondition::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
                LabelCondition::Exists => f.write_str(key),
                LabelCondition::DoesNotExist => write!(f, "!{key}"),
            }?;
        }
        Ok(())
    }
}

/// A requirement of a label selector on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    test: LabelCondition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelCondition {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// The comparison of a label with the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label is present and has one of the requirement's values.
    In,
    /// The label is absent, or its value is none of the requirement's values.
    NotIn,
    /// The label is present, with any value.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

keywords!(
    LabelOperator,
    "operator": In = "In",
    NotIn = "NotIn",
    Exists = "Exists",
    DoesNotExist = "DoesNotExist"
);

/// The reason why a requirement of a label selector is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operators `In` and `NotIn` need values, but there are none.
    #[error("`{}` needs values: list at least one", .0.as_str())]
    ValuesMissing(LabelOperator),
    /// The operators `Exists` and `DoesNotExist` take no values, but there are some.
    #[error("`{}` takes no values: remove them", .0.as_str())]
    ValuesForbidden(LabelOperator),
    /// The key of the label is empty.
    #[error("the key is empty: name the label")]
    KeyEmpty,
}

impl LabelRequirement {
    /// Creates a requirement as in `matchExpressions`.
    ///
    /// # Errors
    ///
    /// Fails when the key is empty, or the values do not fit the operator.
    pub fn new(key: impl Into<String>, operator: LabelOperator, values: Vec<String>) -> Result<Self, SelectorError> {
        let key = key.into();
        if key.is_empty() {
            return Err(SelectorError::KeyEmpty);
        }
        let test = match (operator, values.is_empty()) {
            (LabelOperator::In, false) => LabelCondition::In(values),
            (LabelOperator::NotIn, false) => LabelCondition::NotIn(values),
            (LabelOperator::Exists, true) => LabelCondition::Exists,
            (LabelOperator::DoesNotExist, true) => LabelCondition::DoesNotExist,
            (LabelOperator::In | LabelOperator::NotIn, true) => {
                return Err(SelectorError::ValuesMissing(operator));
            }
            (LabelOperator::Exists | LabelOperator::DoesNotExist, false) => {
                return Err(SelectorError::ValuesForbidden(operator));
            }
        };
        Ok(Self { key, test })
    }

    /// Creates a requirement as in `matchLabels`: the label must be present and have this value.
    ///
    /// # Errors
    ///
    /// Fails when the key is empty.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Result<Self, SelectorError> {
        Self::new(key, LabelOperator::In, vec![value.into()])
    }

    fn is_met_by(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        match &self.test {
            LabelCondition::In(values) => label.is_some_and(|label| values.contains(label)),
            LabelCondition::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            LabelCondition::Exists => label.is_some(),
            LabelCondition::DoesNotExist => label.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_requirement_is_met_according_to_its_operator() {
        use LabelOperator::*;
        let labels: Labels = [("tier".into(), "web".into()), ("empty".into(), "".into())].into();
        // (key, operator, values, whether the labels meet the requirement). The source is Kubernetes' apimachinery.
        let table: [(&str, LabelOperator, &[&str], bool); 12] = [
            ("tier", In, &["web"], true),
            ("tier", In, &["db", "web"], true),
            ("tier", In, &["db"], false),
            ("other", In, &["web"], false),
            ("tier", NotIn, &["db"], true),
            ("tier", NotIn, &["web"], false),
            ("other", NotIn, &["web"], true),
            ("tier", Exists, &[], true),
            ("empty", Exists, &[], true),
            ("other", Exists, &[], false),
            ("tier", DoesNotExist, &[], false),
            ("other", DoesNotExist, &[], true),
        ];
        for (key, operator, values, expected) in table {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let selector = LabelSelector::new(vec![LabelRequirement::new(key, operator, values).unwrap()]);
            assert_eq!(selector.matches(&labels), expected, "{selector:?}");
        }
    }

    #[test]
    fn a_label_selector_matches_only_if_all_requirements_are_met() {
        let selector = LabelSelector::new(vec![
            LabelRequirement::equals("a", "1").unwrap(),
            LabelRequirement::equals("b", "2").unwrap(),
        ]);
        assert!(!selector.matches(&[("a".into(), "1".into())].into()));
        assert!(selector.matches(&[("a".into(), "1".into()), ("b".into(), "2".into())].into()));
        assert!(LabelSelector::default().matches(&Labels::new()));
    }

    #[test]
    fn a_label_requirement_needs_values_that_fit_its_operator() {
        for operator in LabelOperator::ALL {
            let needs = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
            assert_eq!(
                LabelRequirement::new("a", operator, vec![]).is_err(),
                needs,
                "{operator:?}"
            );
            assert_eq!(
                LabelRequirement::new("a", operator, vec!["x".into()]).is_err(),
                !needs,
                "{operator:?}"
            );
        }
        assert_eq!(LabelRequirement::equals("", "x"), Err(SelectorError::KeyEmpty));
    }
}
