//! Renders the help of the program, with its commands in groups.

use std::fmt::Write;

use clap::{Command, CommandFactory};

/// The groups of commands in the help: the heading and commands of each, in the order in which users need them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Begin", &["init", "serve", "check", "doctor"]),
    (
        "Write and test hooks",
        &["new", "test", "dev", "run", "bench", "replay"],
    ),
    (
        "Operate a driver",
        &[
            "status",
            "history",
            "diff",
            "rollback",
            "get",
            "apply",
            "delete",
            "candidates",
            "promote",
            "rollout",
            "disable",
            "enable",
        ],
    ),
    ("Decisions", &["decisions", "explain", "record"]),
    ("Modules", &["pull", "push", "inspect"]),
    ("Kubernetes", &["kubernetes", "import", "audit", "certs"]),
    (
        "Gateway of BCS",
        &[
            "users",
            "tokens",
            "clusters",
            "register-tokens",
            "permissions",
            "agent",
            "kubeconfig",
        ],
    ),
];

const OTHER_HEADING: &str = "Shell and editor";

pub(crate) fn grouped_program() -> Command {
    let program = crate::Arguments::command();
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (heading, names) in GROUPS {
        let commands = names.iter().filter_map(|name| program.find_subcommand(name));
        add_group(&mut template, heading, commands);
    }
    let subcommands = program.get_subcommands();
    add_group(
        &mut template,
        OTHER_HEADING,
        subcommands.filter(|command| !is_grouped(command.get_name())),
    );
    let header = *program.get_styles().get_header();
    let _ = writeln!(template, "{header}Options:{header:#}\n{{options}}");
    program.help_template(template)
}

/// Writes a heading and a list of commands. clap formats the list, so it looks like the lists that clap makes itself.
fn add_group<'a>(template: &mut String, heading: &str, commands: impl Iterator<Item = &'a Command>) {
    let group = Command::new("group")
        .help_template("{subcommands}")
        .disable_help_subcommand(true)
        .max_term_width(crate::HELP_WIDTH)
        .subcommands(commands.cloned());
    let header = *group.get_styles().get_header();
    let list = group.clone().render_help().ansi().to_string();
    let _ = writeln!(template, "{header}{heading}:{header:#}\n{}\n", list.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_the_help_lists_existing_commands() {
        let program = grouped_program();
        for (heading, names) in GROUPS {
            for name in names {
                assert!(program.find_subcommand(name).is_some(), "{heading}: {name}");
            }
        }
        let help = program.clone().render_help().to_string();
        let visible = program.get_subcommands().filter(|command| !command.is_hide_set());
        for command in visible {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{line:?} in {help}");
        }
    }
}
