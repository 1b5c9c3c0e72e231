//! The manual as a book that can be searched.

use std::process::Command;

use crate::{
    command::{Error, root, run, say, target_directory},
    tool::Tool,
};

const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    features: Some("--features=search"),
};

pub(crate) fn write() -> Result<(), Error> {
    let program = MDBOOK.install()?;
    let book = target_directory().join("book");
    run(Command::new(program)
        .args(["build", "--dest-dir"])
        .arg(&book)
        .arg("docs")
        .current_dir(root()))?;
    say(&format!("The manual is {}", book.join("index.html").display()));
    Ok(())
}
