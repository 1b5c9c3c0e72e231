//! `admittance completions` and `admittance man`: files for shells and for `man`.

use std::{fs, io, path::PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use crate::{files, output::write};

/// Print the script with which a shell completes command lines. The script calls the program, which asks a running
/// driver for its chains, stages, definitions and revisions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance completions bash > ~/.local/share/bash-completion/completions/admittance
  admittance completions fish > ~/.config/fish/completions/admittance.fish
  admittance completions zsh > \"${fpath[1]}/_admittance\"
  admittance completions powershell >> $PROFILE")]
pub(crate) struct CompletionsArguments {
    /// The shell for which the script is printed.
    shell: Shell,
}

/// Write the man pages: one for the program, and one for each command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance man ~/.local/share/man/man1 && man admittance-test")]
pub(crate) struct ManArguments {
    /// The directory for the man pages; created if it does not exist.
    directory: PathBuf,
}

const PROGRAM: &str = "admittance";

impl CompletionsArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        Ok(write(&String::from_utf8(completion_script(self.shell)?)?)?)
    }
}

/// The environment variable by which a shell's completion script asks for completions. Its value is the shell's name.
const COMPLETION_VARIABLE: &str = "ADMITTANCE_COMPLETE";

/// Completes the command line and exits, if a shell's completion script has started the program.
pub(crate) fn handle_completion_request() {
    CompleteEnv::with_factory(crate::Arguments::command)
        .var(COMPLETION_VARIABLE)
        .complete();
}

fn completion_script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(&shell.to_string()) {
        completer.write_registration(COMPLETION_VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    }
    Ok(script)
}

impl ManArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let mut program = crate::Arguments::command();
        program.build();
        fs::create_dir_all(&self.directory).map_err(files::error_at(&self.directory))?;
        self.write_page(&program, PROGRAM.to_owned())
    }

    fn write_page(&self, command: &clap::Command, name: String) -> crate::Result<()> {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(command.clone()).title(name.clone());
        man.render(&mut page)?;
        // clap_mangen puts text that follows the help, here the examples, under the heading EXTRA. The examples get the
        // heading EXAMPLES instead.
        let page = String::from_utf8(page)?.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
        let path = self.directory.join(format!("{name}.1"));
        files::replace_file(&path, page.as_bytes(), files::PUBLIC_MODE)?;
        let commands = command.get_subcommands();
        for command in commands.filter(|command| !command.is_hide_set() && command.get_name() != "help") {
            self.write_page(command, format!("{name}-{}", command.get_name()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::ValueEnum;
    use clap_complete::engine::{CompletionCandidate, complete};

    use super::*;

    fn all_commands(parent: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
        let subcommands = parent.get_subcommands().filter(|command| !command.is_hide_set());
        subcommands
            .flat_map(|command| {
                let name = format!("{name} {}", command.get_name());
                let mut all = all_commands(command, &name);
                all.push((name, command.clone()));
                all
            })
            .collect()
    }

    #[test]
    fn the_help_of_every_command_has_examples() {
        for (name, command) in all_commands(&crate::Arguments::command(), PROGRAM) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().skip(1).filter(|line| line.contains(&name)).count();
            assert!(help.starts_with("Examples:\n") && examples > 0, "{name}: {help}");
        }
    }

    #[test]
    fn every_command_has_a_man_page_and_completions() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("share/man1");
        let directory = pages.clone();
        ManArguments { directory }.run().unwrap();
        for (name, _) in all_commands(&crate::Arguments::command(), PROGRAM) {
            let page = pages.join(format!("{}.1", name.replace(' ', "-")));
            let text = files::read(&page).unwrap();
            assert!(
                text.contains(".SH NAME") && text.contains(".SH EXAMPLES"),
                "{}",
                page.display()
            );
        }
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completion_script(*shell).unwrap()).unwrap();
            assert!(
                script.contains(COMPLETION_VARIABLE) && script.contains(PROGRAM),
                "{shell}"
            );
        }
        let words = ["admittance", "explain", "--call-w"].map(OsString::from);
        let mut program = crate::Arguments::command();
        let candidates = complete(&mut program, words.to_vec(), 2, None).unwrap();
        let values: Vec<_> = candidates.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(values, ["--call-webhooks"]);
    }
}
