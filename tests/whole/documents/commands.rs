//! Checks the commands, flags and environment variables that the pages mention.

use std::collections::{BTreeMap, BTreeSet};

use admittance_tests::Admittance;

use super::{
    blocks,
    page::{Block, Page, code_spans, shell_words},
};

/// Returns the shell commands in a block as lists of words.
pub(super) fn commands(block: &Block) -> Vec<Vec<String>> {
    let lines = block.text.lines().filter(|_| block.info == "console");
    lines
        .filter_map(|line| line.strip_prefix("$ "))
        .map(shell_words)
        .collect()
}

fn flags_in(help: &str) -> BTreeSet<String> {
    help.split(|c: char| c.is_whitespace() || matches!(c, ',' | '\'' | '`' | '[' | ']'))
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .map(str::to_owned)
        .collect()
}

async fn command_helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let all = Admittance::run(["--help"]).await.unwrap().stdout;
    // In the output of `--help`, a line about a command is indented by two spaces. The headings between commands are
    // not indented, and continuation lines are indented by more than two spaces.
    let (commands, _) = all.split_once("\nOptions:\n").unwrap();
    let mut names: Vec<String> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    while let Some(subcommand) = names.pop() {
        let arguments = subcommand.split(' ').chain(["--help"]);
        let help = Admittance::run(arguments).await.unwrap();
        assert_eq!(help.code, Some(0), "{subcommand}: {}", help.stderr);
        if let Some((_, nested)) = help.stdout.split_once("Commands:\n") {
            let (nested, _) = nested.split_once("\n\n").unwrap();
            let nested = nested
                .lines()
                .filter(|line| !line.starts_with("    "))
                .filter_map(|line| line.split_whitespace().next())
                .filter(|name| *name != "help");
            names.extend(nested.map(|name| format!("{subcommand} {name}")));
        } else {
            helps.insert(subcommand, help.stdout);
        }
    }
    helps
}

#[tokio::test]
async fn commands_and_flags_on_the_pages_exist() {
    let helps = command_helps().await;
    let all: BTreeSet<String> = helps.values().flat_map(|help| flags_in(help)).collect();
    let check = |location: &str, command: &[String]| {
        let Some((program, arguments)) = command.split_first().filter(|(program, _)| *program == "admittance") else {
            return;
        };
        let Some((subcommand, mut arguments)) = arguments.split_first() else {
            return;
        };
        let mut subcommand = subcommand.clone();
        if !helps.contains_key(&subcommand)
            && let Some((second, rest)) = arguments.split_first()
        {
            subcommand = format!("{subcommand} {second}");
            arguments = rest;
        }
        if subcommand.starts_with("help") || subcommand.starts_with('-') {
            return;
        }
        let help = helps.get(subcommand.as_str());
        assert!(help.is_some(), "{location}: `{program} {subcommand}` does not exist");
        for flag in arguments.iter().filter(|word| word.starts_with('-')) {
            assert!(
                flags_in(help.unwrap()).contains(flag),
                "{location}: `{subcommand}` has no {flag}"
            );
        }
    };
    for block in blocks() {
        for command in commands(&block) {
            check(&block.to_string(), &command);
        }
    }
    for page in Page::read_all() {
        for (line, code) in page.codes() {
            let location = format!("{}:{line}", page.path.display());
            check(&location, &shell_words(code));
            // A flag in the middle of a code span may belong to another program's command.
            let is_flag = |word: &&str| word.starts_with("--") && *word != "---";
            if let Some(flag) = code.split(' ').next().filter(is_flag) {
                assert!(all.contains(flag), "{location}: the program has no {flag}");
            }
        }
    }
}

#[tokio::test]
async fn flags_and_variables_of_serve_are_documented() {
    let helps = command_helps().await;
    let variables = |help: &str| -> BTreeSet<String> {
        let rest = help.split("[env: ").skip(1);
        rest.filter_map(|rest| rest.split_once('='))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let page = Page::read("docs/configuration.md");
    let documented_names: BTreeSet<String> = page
        .rows("Flags and environment variables")
        .iter()
        .flat_map(|row| [code_spans(row[0]), code_spans(row[1])].concat())
        .filter(|code| code.starts_with("--") || code.starts_with("ADMITTANCE_"))
        .map(str::to_owned)
        .collect();
    let serve = &helps["serve"];
    let mut actual_names = flags_in(serve);
    actual_names.retain(|flag| flag.starts_with("--") && !["--help", "--version"].contains(&flag.as_str()));
    actual_names.extend(variables(serve));
    assert_eq!(documented_names, actual_names);
    let mut all: BTreeSet<String> = helps.values().flat_map(|help| variables(help)).collect();
    // `ADMITTANCE_TOKEN` has no flag, because other users of the machine can see the arguments of a process.
    all.insert("ADMITTANCE_TOKEN".to_owned());
    // `ADMITTANCE_PLUGINS` has no flag either. It names the directory of stock plugins, which is the same for all
    // commands of an installation.
    all.insert("ADMITTANCE_PLUGINS".to_owned());
    for page in Page::read_all() {
        let names = page.text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        for name in names.filter(|word| word.starts_with("ADMITTANCE_")) {
            assert!(all.contains(name), "{}: there is no {name}", page.path.display());
        }
    }
}
