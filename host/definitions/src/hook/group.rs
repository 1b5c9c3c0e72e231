//! The hook that combines verdicts of plugins by an expression: the field `group` of native stages, and
//! Kubewarden's groups.

use std::{sync::Arc, time::Duration};

use admittance_admission::{Denial, HookGroup};
use admittance_conditions::GroupExpression;
use serde_json::Value as Json;

use super::{
    HookContext, HookDefinition, HookError, HookKind, HookStatus, PreparedHook,
    plugin::{self, PluginDefinition, PluginRole, is_cut},
};
use crate::{
    Location,
    document::{Fields, Node, readers},
    names,
};

/// A hook that calls several plugins and returns one verdict.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupDefinition {
    /// The plugins of the group. Each has its own name.
    pub members: Vec<MemberDefinition>,
    /// The condition under which the group allows a request. In a native group, the expression must use every plugin of
    /// the group. In a group of Kubewarden, it may leave some of them out.
    pub expression: GroupExpression,
    /// The denial that the group returns. When it denies a request, the causes are added.
    pub denial: Denial,
    /// The path of the group's plugins in the document. It is shown in the causes of a denial.
    pub members_path: &'static str,
}

impl HookKind for GroupDefinition {
    fn plugins(&self) -> Vec<(PluginRole<'_>, &PluginDefinition)> {
        let members = self.members.iter();
        members
            .map(|member| (PluginRole::Member(member), &member.plugin))
            .collect()
    }

    fn plugins_mut(&mut self) -> Vec<&mut PluginDefinition> {
        self.members.iter_mut().map(|member| &mut member.plugin).collect()
    }

    // Plugin locations are ignored here, because they change whenever a line above a plugin is added or removed.
    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        let Some(now) = now.get::<Self>() else {
            return true;
        };
        let is_weaker = |before: &MemberDefinition| {
            let member = now.members.iter().find(|member| member.name == before.name);
            member.is_none_or(|now| is_cut(&before.plugin.settings, &now.plugin.settings))
        };
        self.expression != now.expression || self.members.iter().any(is_weaker)
    }

    // An import never writes a group as a native stage. Only Kubewarden's groups are imported, and are kept unchanged.
    fn to_native(&self) -> Option<(&'static str, Json)> {
        None
    }

    fn native_form_obstacles(&self) -> Vec<&'static str> {
        vec!["denials of a native group have the code 403, and causes that name `plugins`"]
    }

    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let expression = self.expression.text().trim();
        let mut status = HookStatus::new("group", expression).with_fact("expression", expression);
        let mut identity = expression.to_owned();
        let mut members = Vec::new();
        for (member, plugin) in self.members.iter().zip(context.plugins) {
            identity += &format!(" {}", plugin.identity);
            status.plugins.insert(member.name.to_string(), plugin.status);
            members.push((member.name.clone(), plugin.hook));
        }
        let formula = self.expression.formula().clone();
        let hook = HookGroup::new(members, formula, self.denial.clone(), self.members_path);
        Ok(PreparedHook {
            identity,
            failures: PluginDefinition::FAILURES,
            ..PreparedHook::new(Arc::new(hook), status)
        })
    }
}

/// A plugin that is a member of a group.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberDefinition {
    /// The name by which the group's expression calls the plugin. It is a CEL identifier.
    pub name: Arc<str>,
    /// The definition of the plugin.
    pub plugin: PluginDefinition,
    /// The timeout of one call of this plugin, within the stage's timeout; `None` for the stage's timeout.
    pub timeout: Option<Duration>,
    /// The location of the plugin's entry in the document of the group.
    pub location: Location,
}

const PLUGINS: &str = "plugins";

/// The fields that native groups and Kubewarden's policy groups have in common.
pub(crate) struct GroupParts<'a> {
    pub(crate) members: Vec<MemberDefinition>,
    pub(crate) expression: GroupExpression,
    pub(crate) unused_members: Vec<(&'a str, Node<'a>)>,
}

pub(crate) fn read(node: &Node<'_>) -> Option<GroupDefinition> {
    let mut fields = node.object()?;
    let parts = read_parts(&mut fields, PLUGINS, read_member);
    let fix = "write what clients are told when it denies a request";
    let message = fields.get_required("message", fix, readers::text);
    let parts = parts?;
    for (name, node) in parts.unused_members {
        let fix = format!("write `{name}()` in the expression, or remove the plugin");
        node.add_mistake("the expression does not use it", fix);
    }
    Some(GroupDefinition {
        members: parts.members,
        expression: parts.expression,
        denial: Denial::forbidden(message?),
        members_path: PLUGINS,
    })
}

fn read_member(name: &str, node: &Node<'_>) -> Option<MemberDefinition> {
    let (plugin, timeout) = plugin::read_member(node)?;
    Some(MemberDefinition {
        name: name.into(),
        plugin,
        timeout,
        location: node.location(),
    })
}

pub(crate) fn read_parts<'a>(
    fields: &mut Fields<'a>,
    members_path: &'static str,
    mut read: impl FnMut(&str, &Node<'a>) -> Option<MemberDefinition>,
) -> Option<GroupParts<'a>> {
    let fix = "write when a request is allowed, `signed() || internal()`";
    let expression = fields.required("expression", fix);
    let node = fields.required(members_path, "name the members that the expression uses")?;
    let entries = node.map()?;
    let max_member_count = GroupExpression::MAX_MEMBERS;
    if entries.is_empty() || entries.len() > max_member_count {
        let message = format!("the group has {} members", entries.len());
        node.add_mistake(message, format!("write 1 to {max_member_count}"));
    }
    let members: Vec<_> = entries
        .iter()
        .map(|(name, node)| {
            let name = node.accept(names::check_identifier(name));
            // Even if the name is invalid, the member is read, so that all its mistakes are reported.
            let member = read(name.as_deref().unwrap_or_default(), node);
            name.and(member)
        })
        .collect();
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let expression = expression.and_then(|node| node.accept(GroupExpression::compile(node.text()?, &names)))?;
    let is_unused = |(index, _): &(usize, _)| !expression.formula().uses(*index);
    let unused = entries.into_iter().enumerate().filter(is_unused);
    Some(GroupParts {
        unused_members: unused.map(|(_, entry)| entry).collect(),
        members: members.into_iter().collect::<Option<_>>()?,
        expression,
    })
}

#[cfg(test)]
mod tests;
