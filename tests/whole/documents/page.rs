use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
};

use admittance_tests::repository;

pub(crate) struct Page {
    /// The path of the page's file, relative to the repository's root.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

pub(super) struct Block {
    pub(super) page: PathBuf,
    /// The number of the line on the page that opens the block.
    pub(super) line: usize,
    /// The text behind the opening fence of the block, such as `yaml` or `rust,no_run`.
    pub(super) info: String,
    pub(super) text: String,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page.display(), self.line)
    }
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(repository().join(path)).unwrap();
        Self {
            path: path.into(),
            text,
        }
    }

    /// Returns the README and all pages below `docs`.
    pub(super) fn read_all() -> Vec<Self> {
        let mut pages = vec![Self::read("README.md")];
        let mut folders = vec![PathBuf::from("docs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(repository().join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    pages.push(Self::read(path.to_str().unwrap()));
                }
            }
        }
        pages
    }

    /// Returns the fenced code blocks of the page, without the indentation of their opening fence.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let Some(info) = line.trim_start().strip_prefix("```") else {
                continue;
            };
            let indent = line.len() - line.trim_start().len();
            let text: String = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| line.trim() != "```")
                .map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()))
                .collect();
            blocks.push(Block {
                page: self.path.clone(),
                line: index + 1,
                info: info.trim().to_owned(),
                text,
            });
        }
        blocks
    }

    pub(crate) fn yaml(&self) -> Vec<String> {
        let blocks = self.blocks().into_iter().filter(|block| block.info == "yaml");
        blocks.map(|block| block.text).collect()
    }

    /// Returns the page's lines outside of fenced code blocks, each with its line number.
    pub(super) fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let outside = |(_, line): &(usize, &str)| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        };
        let numbered = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        numbered.filter(outside).collect()
    }

    /// Returns the anchors that GitHub generates for the page's headings.
    pub(super) fn anchors(&self) -> Vec<String> {
        let mut slug_counts = HashMap::new();
        let headings = self.prose().into_iter().filter(|(_, line)| line.starts_with('#'));
        headings
            .map(|(_, line)| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let slug_characters = title
                    .chars()
                    .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                let slug = slug_characters
                    .map(|c| if c == ' ' { '-' } else { c })
                    .collect::<String>();
                let earlier_count = *slug_counts.entry(slug.clone()).and_modify(|n| *n += 1).or_insert(0);
                if earlier_count == 0 {
                    slug
                } else {
                    format!("{slug}-{earlier_count}")
                }
            })
            .collect()
    }

    /// Returns the targets of the page's links, each with its line number.
    pub(super) fn links(&self) -> Vec<(usize, &str)> {
        let line_links = |(number, line): (usize, &'_ str)| {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets
                .map(|(target, _)| (number, target.to_owned()))
                .collect::<Vec<_>>()
        };
        self.prose()
            .into_iter()
            .flat_map(line_links)
            .filter_map(|(number, target)| {
                let start = self.text.find(&format!("]({target})"))?;
                self.text
                    .get(start + 2..start + 2 + target.len())
                    .map(|target| (number, target))
            })
            .collect()
    }

    /// Returns the page's code spans (`like this`) outside of fenced blocks, each with its line number.
    pub(super) fn codes(&self) -> Vec<(usize, &str)> {
        let line_codes = |(number, line)| code_spans(line).into_iter().map(move |code| (number, code));
        self.prose().into_iter().flat_map(line_codes).collect()
    }

    /// Returns the code spans in the first column of the tables under a heading, up to the next heading.
    pub(super) fn first_column(&self, heading: &str) -> Vec<&str> {
        self.rows(heading)
            .into_iter()
            .flat_map(|row| code_spans(row[0]))
            .collect()
    }

    /// Returns the code spans in the first column of the tables under a heading and its subheadings.
    pub(super) fn first_column_with_subsections(&self, heading: &str) -> Vec<&str> {
        self.rows_until(heading, |level, other| other <= level)
            .into_iter()
            .flat_map(|row| code_spans(row[0]))
            .collect()
    }

    /// Returns the rows of all tables between this heading and the next one, without the delimiter rows (`|---|`).
    pub(super) fn rows(&self, heading: &str) -> Vec<Vec<&str>> {
        self.rows_until(heading, |_, _| true)
    }

    /// Returns the rows of all tables in the section with this heading. `ends` decides where the section ends: it gets
    /// the level of this heading and the level of a later heading, and returns whether the later heading begins another
    /// section.
    fn rows_until(&self, heading: &str, ends: impl Fn(usize, usize) -> bool) -> Vec<Vec<&str>> {
        let level = |line: &str| line.chars().take_while(|c| *c == '#').count();
        let prose = self.prose();
        let mut section = prose
            .iter()
            .map(|(_, line)| *line)
            .skip_while(|line| line.trim_start_matches('#').trim() != heading || !line.starts_with('#'));
        let first = section.next();
        assert!(first.is_some(), "{} has the heading {heading}", self.path.display());
        let start = first.map_or(0, level);
        let rows: Vec<Vec<&str>> = section
            .take_while(|line| !line.starts_with('#') || !ends(start, level(line)))
            .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
            .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        assert!(!rows.is_empty(), "{} has a table under {heading}", self.path.display());
        rows
    }
}

pub(super) fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Splits a shell command into words, as far as the examples on the pages use the shell's syntax.
pub(super) fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            (_, c) => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

pub(super) fn resolve_link(page: &Path, target: &str) -> PathBuf {
    let folder = page.parent().unwrap_or(Path::new(""));
    repository().join(folder).join(target)
}
