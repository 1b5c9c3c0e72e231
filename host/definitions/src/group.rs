//! Groups: an expression over plugins, `group` of a native stage and the policy groups of Kubewarden.

use admittance_admission::Denial;
use admittance_conditions::GroupExpression;

use crate::{
    document::{Fields, Mistakes, Node, readers},
    model::{GroupDefinition, MemberDefinition},
    names, plugin,
};

/// The field of the members in a native stage.
const PLUGINS: &str = "plugins";

/// The members of a group, and the expression over them.
pub(crate) struct Parts<'a> {
    pub(crate) members: Vec<MemberDefinition>,
    pub(crate) expression: GroupExpression,
    /// The members that the expression does not use.
    pub(crate) unused: Vec<(&'a str, Node<'a>)>,
}

/// `group` of a native stage.
pub(crate) fn read(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<GroupDefinition> {
    let mut fields = node.object(mistakes)?;
    let parts = read_parts(&mut fields, PLUGINS, read_member, mistakes);
    let fix = "write what clients are told when it denies a request";
    let message = fields.get_required("message", fix, readers::text, mistakes);
    fields.finish(mistakes);
    let parts = parts?;
    for (name, node) in parts.unused {
        let fix = format!("write `{name}()` in the expression, or remove the plugin");
        node.wrong("the expression does not use it", fix, mistakes);
    }
    Some(GroupDefinition {
        members: parts.members,
        expression: parts.expression,
        denial: Denial::forbidden(message?),
        field: PLUGINS,
    })
}

fn read_member(name: &str, node: &Node<'_>, mistakes: &mut Mistakes) -> Option<MemberDefinition> {
    let (plugin, timeout) = plugin::read_member(node, mistakes)?;
    Some(MemberDefinition {
        name: name.into(),
        plugin,
        timeout,
        location: node.location(),
    })
}

/// The members in this field, each read by `read`, and `expression`.
pub(crate) fn read_parts<'a>(
    fields: &mut Fields<'a>,
    field: &'static str,
    mut read: impl FnMut(&str, &Node<'a>, &mut Mistakes) -> Option<MemberDefinition>,
    mistakes: &mut Mistakes,
) -> Option<Parts<'a>> {
    let fix = "write when a request is allowed, `signed() || internal()`";
    let expression = fields.required("expression", fix, mistakes);
    let node = fields.required(field, "name the members that the expression uses", mistakes);
    let node = node?;
    let entries = node.map(mistakes)?;
    let most = GroupExpression::MOST_MEMBERS;
    if entries.is_empty() || entries.len() > most {
        let message = format!("the group has {} members", entries.len());
        node.wrong(message, format!("write 1 to {most}"), mistakes);
    }
    let members: Vec<_> = entries
        .iter()
        .map(|(name, node)| {
            let name = node.accept(names::identifier(name), mistakes);
            // Its content is checked in any case.
            let member = read(name.as_deref().unwrap_or_default(), node, mistakes);
            name.and(member)
        })
        .collect();
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let expression = expression.and_then(|node| {
        let compiled = GroupExpression::compile(node.text(mistakes)?, &names);
        node.accept(compiled, mistakes)
    })?;
    let is_unused = |(index, _): &(usize, _)| !expression.formula().uses(*index);
    let unused = entries.into_iter().enumerate().filter(is_unused);
    Some(Parts {
        unused: unused.map(|(_, entry)| entry).collect(),
        members: members.into_iter().collect::<Option<_>>()?,
        expression,
    })
}

#[cfg(test)]
mod tests;
