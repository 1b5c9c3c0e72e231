//! Renders the templates of the chart as Helm does, so that manifests and chart come from the same templates. Supports
//! only the part of Go's template language that these templates use.

use std::{
    collections::{BTreeMap, HashMap},
    iter::Peekable,
    slice::Iter,
};

use admittance_definitions::document::{to_json, to_yaml};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value as Json, json};

use super::chart::ChartFiles;

/// Renders this template. `root` contains the values `Release` and `Values`. `files` contains the files of the chart,
/// including its other templates.
pub(super) fn render(template: &str, root: &Json, files: &ChartFiles) -> Result<String, String> {
    let helpers = include_str!("chart/templates/_helpers.tpl");
    let mut renderer = Renderer {
        root,
        files,
        named_templates: HashMap::new(),
    };
    for node in parse(helpers)? {
        if let TemplateNode::Block { words, body, .. } = node
            && let Some(Word::Text(name)) = words.first()
        {
            renderer.named_templates.insert(name, body);
        }
    }
    let mut out = String::new();
    let mut scope = TemplateScope {
        dot: root.clone(),
        variables: BTreeMap::new(),
    };
    renderer.render_nodes(&parse(template)?, &mut scope, &mut out)?;
    Ok(out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word<'t> {
    /// The name of a function, or a keyword.
    Name(&'t str),
    Path(&'t str),
    Text(&'t str),
    Number(u64),
    Open,
    Close,
    Pipe,
}

#[derive(Debug)]
enum TemplateNode<'t> {
    Text(&'t str),
    Print(Vec<Word<'t>>),
    Assign(&'t str, Vec<Word<'t>>),
    Block {
        keyword: &'t str,
        words: Vec<Word<'t>>,
        body: Vec<TemplateNode<'t>>,
        else_body: Vec<TemplateNode<'t>>,
    },
}

fn parse(template: &str) -> Result<Vec<TemplateNode<'_>>, String> {
    let mut parts = Vec::new();
    let mut remaining_template = template;
    while let Some((text, text_from_action)) = remaining_template.split_once("{{") {
        let (action, text_after_action) = text_from_action.split_once("}}").ok_or("an action is not closed")?;
        let without_dash = action.strip_prefix('-');
        parts.push((without_dash.map_or(text, |_| text.trim_end()), None));
        let action = without_dash.unwrap_or(action);
        let (action, after) = match action.strip_suffix('-') {
            Some(action) => (action, text_after_action.trim_start()),
            None => (action, text_after_action),
        };
        if !action.trim_start().starts_with("/*") {
            parts.push(("", Some(split_words(action)?)));
        }
        remaining_template = after;
    }
    parts.push((remaining_template, None));
    let mut parts = parts.into_iter();
    Ok(parse_nodes(&mut parts).0)
}

fn parse_nodes<'t>(
    parts: &mut impl Iterator<Item = (&'t str, Option<Vec<Word<'t>>>)>,
) -> (Vec<TemplateNode<'t>>, bool) {
    let mut nodes = Vec::new();
    while let Some((text, words)) = parts.next() {
        let Some(words) = words else {
            nodes.push(TemplateNode::Text(text));
            continue;
        };
        nodes.push(match words.as_slice() {
            [Word::Name("end"), ..] => return (nodes, false),
            [Word::Name("else"), ..] => return (nodes, true),
            [Word::Name(keyword @ ("define" | "if" | "with" | "range")), words @ ..] => {
                let (body, has_else) = self::parse_nodes(parts);
                TemplateNode::Block {
                    keyword,
                    words: words.to_vec(),
                    body,
                    else_body: if has_else {
                        self::parse_nodes(parts).0
                    } else {
                        Vec::new()
                    },
                }
            }
            [Word::Path(name), Word::Name(":="), words @ ..] => TemplateNode::Assign(name, words.to_vec()),
            _ => TemplateNode::Print(words),
        });
    }
    (nodes, false)
}

fn split_words(action: &str) -> Result<Vec<Word<'_>>, String> {
    let mut words = Vec::new();
    let mut remaining_action = action.trim_start();
    while let Some(first_char) = remaining_action.chars().next() {
        let word;
        (word, remaining_action) = match first_char {
            '(' | ')' | '|' => {
                let sign = match first_char {
                    '(' => Word::Open,
                    ')' => Word::Close,
                    _ => Word::Pipe,
                };
                (sign, remaining_action.get(1..).unwrap_or_default())
            }
            '"' => {
                let text = remaining_action.get(1..).and_then(|rest| rest.split_once('"'));
                let (text, rest) = text.ok_or("a string is not closed")?;
                (Word::Text(text), rest)
            }
            _ => {
                let end = remaining_action.find(|c: char| c.is_whitespace() || "()|".contains(c));
                let (word, rest) = remaining_action.split_at(end.unwrap_or(remaining_action.len()));
                let word = match word.parse() {
                    Ok(number) => Word::Number(number),
                    Err(_) if word.starts_with(['.', '$']) => Word::Path(word),
                    Err(_) => Word::Name(word),
                };
                (word, rest)
            }
        };
        words.push(word);
        remaining_action = remaining_action.trim_start();
    }
    Ok(words)
}

#[derive(Clone)]
struct TemplateScope<'t> {
    dot: Json,
    variables: BTreeMap<&'t str, Json>,
}

struct Renderer<'a> {
    root: &'a Json,
    files: &'a ChartFiles,
    /// The bodies of `define` blocks, by name.
    named_templates: HashMap<&'static str, Vec<TemplateNode<'static>>>,
}

type Words<'w, 't> = Peekable<Iter<'w, Word<'t>>>;

impl Renderer<'_> {
    fn render_nodes<'t>(
        &self,
        nodes: &[TemplateNode<'t>],
        scope: &mut TemplateScope<'t>,
        out: &mut String,
    ) -> Result<(), String> {
        for node in nodes {
            match node {
                TemplateNode::Text(text) => out.push_str(text),
                TemplateNode::Print(words) => {
                    let value = self.evaluate_pipeline(&mut words.iter().peekable(), scope)?;
                    out.push_str(&text(&value));
                }
                TemplateNode::Assign(name, words) => {
                    let value = self.evaluate_pipeline(&mut words.iter().peekable(), scope)?;
                    scope.variables.insert(name, value);
                }
                TemplateNode::Block {
                    keyword,
                    words,
                    body,
                    else_body: otherwise,
                } => {
                    let value = self.evaluate_pipeline(&mut words.iter().peekable(), scope)?;
                    let dots = match (*keyword, value) {
                        (_, value) if is_empty(&value) => {
                            self.render_nodes(otherwise, scope, out)?;
                            continue;
                        }
                        ("range", Json::Array(items)) => items,
                        ("with", value) => vec![value],
                        _ => vec![scope.dot.clone()],
                    };
                    for dot in dots {
                        let mut inner_scope = TemplateScope { dot, ..scope.clone() };
                        self.render_nodes(body, &mut inner_scope, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Evaluates a pipeline. Each command gets the result of the previous one as its last argument.
    fn evaluate_pipeline(&self, words: &mut Words<'_, '_>, scope: &TemplateScope<'_>) -> Result<Json, String> {
        let mut value = self.evaluate_command(words, scope, None)?;
        while words.next_if_eq(&&Word::Pipe).is_some() {
            value = self.evaluate_command(words, scope, Some(value))?;
        }
        Ok(value)
    }

    fn evaluate_command(
        &self,
        words: &mut Words<'_, '_>,
        scope: &TemplateScope<'_>,
        piped_value: Option<Json>,
    ) -> Result<Json, String> {
        let function = words.next_if(|word| match word {
            Word::Name(_) => true,
            Word::Path(path) => path.contains(".Files."),
            _ => false,
        });
        let Some(Word::Name(function) | Word::Path(function)) = function else {
            return self.evaluate_operand(words, scope);
        };
        let mut arguments = Vec::new();
        while words
            .peek()
            .is_some_and(|word| !matches!(word, Word::Pipe | Word::Close))
        {
            arguments.push(self.evaluate_operand(words, scope)?);
        }
        arguments.extend(piped_value);
        self.call_function(function.trim_start_matches(['$', '.']), &arguments)
    }

    fn evaluate_operand(&self, words: &mut Words<'_, '_>, scope: &TemplateScope<'_>) -> Result<Json, String> {
        match words.next() {
            Some(Word::Text(text)) => Ok(json!(text)),
            Some(Word::Number(number)) => Ok(json!(number)),
            Some(Word::Path(path)) => {
                let (variable, path) = path.split_once('.').unwrap_or((path, ""));
                let start = match variable {
                    "" => &scope.dot,
                    "$" => self.root,
                    name => scope.variables.get(name).unwrap_or(&Json::Null),
                };
                let mut fields = path.split('.').filter(|field| !field.is_empty());
                let value = fields.try_fold(start, |value, field| value.get(field));
                Ok(value.cloned().unwrap_or_default())
            }
            Some(Word::Open) => {
                let value = self.evaluate_pipeline(words, scope)?;
                words.next_if_eq(&&Word::Close).ok_or("a parenthesis is not closed")?;
                match words.next_if(|word| matches!(word, Word::Path(path) if path.starts_with(".As"))) {
                    Some(Word::Path(".AsSecrets")) => {
                        Ok(self.encode_files(&value, |file| BASE64_STANDARD.encode(file)))
                    }
                    Some(_) => Ok(self.encode_files(&value, |file| String::from_utf8_lossy(file).into_owned())),
                    None => Ok(value),
                }
            }
            word => Err(format!("{word:?} is not an operand")),
        }
    }

    fn call_function(&self, function: &str, arguments: &[Json]) -> Result<Json, String> {
        Ok(match (function, arguments) {
            ("quote", [value]) => json!(json!(text(value)).to_string()),
            ("toYaml", [value]) => json!(yaml_block(value)),
            ("fromYaml", [value]) => to_json("chart", &text(value)).map_err(|error| error.to_string())?,
            ("nindent", [width, value]) => {
                let line = format!("\n{}", " ".repeat(width.as_u64().unwrap_or_default() as usize));
                json!(format!("{line}{}", text(value).replace('\n', &line)))
            }
            ("default", [default, value]) => if is_empty(value) { default } else { value }.clone(),
            ("printf", [format, values @ ..]) => {
                let formatted = values
                    .iter()
                    .fold(text(format), |printed, value| printed.replacen("%s", &text(value), 1));
                json!(formatted)
            }
            ("eq", [one, other]) => json!(one == other),
            ("not", [value]) => json!(is_empty(value)),
            ("and", [values @ .., last]) => values.iter().find(|value| is_empty(value)).unwrap_or(last).clone(),
            ("include", [name, dot]) => {
                let body = self
                    .named_templates
                    .get(text(name).as_str())
                    .ok_or("a template is not defined")?;
                let mut out = String::new();
                let mut scope = TemplateScope {
                    dot: dot.clone(),
                    variables: BTreeMap::new(),
                };
                self.render_nodes(body, &mut scope, &mut out)?;
                json!(out)
            }
            ("Files.Get", [path]) => {
                let file = self.files.get(&text(path)).map(Vec::as_slice);
                json!(String::from_utf8_lossy(file.unwrap_or_default()))
            }
            // In Helm, `Files.Glob` returns the files that match the pattern. Here it returns the pattern itself. The
            // function that a template calls next, `.AsConfig` or `.AsSecrets`, then looks for the files.
            ("Files.Glob", [pattern]) => pattern.clone(),
            _ => return Err(format!("{function} does not take {} arguments", arguments.len())),
        })
    }

    fn encode_files(&self, pattern: &Json, encode: impl Fn(&[u8]) -> String) -> Json {
        let pattern = text(pattern);
        let directory = pattern.strip_suffix('*');
        let selected_files = self.files.iter().filter(|(path, _)| match directory {
            Some(directory) => path.starts_with(directory),
            None => **path == pattern,
        });
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let files: Map<_, _> = selected_files
            .map(|(path, file)| (name(path), encode(file).into()))
            .collect();
        json!(yaml_block(&files.into()))
    }
}

fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        value => value.to_string(),
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_u64() == Some(0),
        Json::String(text) => text.is_empty(),
        Json::Array(values) => values.is_empty(),
        Json::Object(fields) => fields.is_empty(),
    }
}

/// Writes a value as YAML, without the leading `---`.
fn yaml_block(value: &Json) -> String {
    let document = to_yaml(value);
    let value = document.strip_prefix("---\n").unwrap_or(&document);
    value.strip_suffix('\n').unwrap_or(value).to_owned()
}
