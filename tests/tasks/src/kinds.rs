//! Extracts the fields of Kubernetes' built-in kinds from the source of client-go: their names, their types, and how
//! server-side apply merges them.
//!
//! client-go has the fields twice: in a YAML schema with the keys of lists, and in Go types with the sizes of numbers
//! and the strings that hold bytes. The result, which `host/conditions/src/structure/builtin.rs` reads, has a line per
//! type: its name, `=GROUP/VERSION/KIND` for a kind, `!` for an atomic type, and its fields with their types.

use std::{
    collections::HashMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    command::{Error, say},
    folders::file_error,
};

/// The file that this task generates. It is compiled into the program.
const RESULT_FILE: &str = "host/conditions/src/structure/builtin.txt";

#[derive(Debug, Args)]
pub(crate) struct KindsCommand {
    /// The source of k8s.io/client-go.
    client_go: PathBuf,
    /// The version of client-go, which is written into the generated file.
    version: String,
}

impl KindsCommand {
    pub(crate) fn run(&self) -> Result<(), Error> {
        let configurations = self.client_go.join("applyconfigurations");
        let source = read_file(&configurations.join("internal/internal.go"))?;
        let schema = source.split('`').nth(1).unwrap_or_default();
        let lines: Vec<_> = schema.lines().filter(|line| !line.trim().is_empty()).collect();
        let types = Yaml::parse(&mut lines.as_slice(), 0);
        let names = GoNames::read(&configurations)?;
        let mut text = format!("# From k8s.io/client-go {}, by `cargo task kinds`.\n", self.version);
        for schema_type in types.get("types").map(Yaml::items).unwrap_or_default() {
            names.write_type(schema_type, &mut text);
        }
        fs::write(RESULT_FILE, text).map_err(file_error(Path::new(RESULT_FILE)))?;
        say(&format!("wrote {RESULT_FILE}"));
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(file_error(path))
}

/// A value in the part of YAML that the schema of client-go uses.
#[derive(Debug)]
enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    /// Parses the lines from the current one that are indented by at least `indent` spaces.
    fn parse(lines: &mut &[&str], indent: usize) -> Self {
        let (mut items, mut members) = (Vec::new(), Vec::new());
        while let Some((line, rest)) = lines.split_first() {
            let text = line.trim_start();
            let depth = line.len() - text.len();
            if depth < indent {
                break;
            }
            if let Some(item) = text.strip_prefix("- ") {
                if item.contains(": ") || item.ends_with(':') {
                    items.push(Self::item(lines, depth + 2))
                } else {
                    items.push(Self::Text(item.to_owned()));
                    *lines = rest;
                }
                continue;
            }
            // This line is not an item, so the list has ended. The line contains the next key, which YAML allows to be
            // indented as much as the items of a list.
            if !items.is_empty() {
                break;
            }
            *lines = rest;
            let (key, value) = text.split_once(':').unwrap_or((text, ""));
            let value = match value.trim() {
                "" => {
                    let next = lines.first().map_or(0, |line| line.len() - line.trim_start().len());
                    Self::parse(lines, next)
                }
                value => Self::Text(value.trim_matches('"').to_owned()),
            };
            members.push((key.to_owned(), value));
        }
        if items.is_empty() {
            Self::Map(members)
        } else {
            Self::List(items)
        }
    }

    fn item(lines: &mut &[&str], indent: usize) -> Self {
        let Some((first, rest)) = lines.split_first() else {
            return Self::List(Vec::new());
        };
        let is_deeper = |line: &&&str| line.len() - line.trim_start().len() >= indent;
        let (deeper_lines, rest) = rest.split_at(rest.iter().take_while(is_deeper).count());
        *lines = rest;
        let first = first.replacen("- ", "  ", 1);
        let item_lines: Vec<&str> = [first.as_str()]
            .into_iter()
            .chain(deeper_lines.iter().copied())
            .collect();
        Self::parse(&mut item_lines.as_slice(), indent)
    }

    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(members) => members.iter().find(|(member, _)| member == key).map(|(_, value)| value),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

struct GoNames {
    /// The API group of each Go package, such as `rbac/v1`.
    groups: HashMap<String, String>,
    /// The Go type of each field, such as `rbac/v1.Role.rules`.
    fields: HashMap<String, String>,
}

impl GoNames {
    fn read(configurations: &Path) -> Result<Self, Error> {
        let registered = read_file(&configurations.join("utils.go"))?;
        let mut packages = HashMap::new();
        let (mut groups, mut group) = (HashMap::new(), String::new());
        for line in registered.lines().map(str::trim) {
            if let Some((alias, path)) = line.split_once(" \"k8s.io/client-go/applyconfigurations/") {
                packages.insert(alias.to_owned(), path.trim_end_matches('"').to_owned());
            } else if let Some(group_and_version) = line.strip_prefix("// Group=") {
                group = group_and_version.split(',').next().unwrap_or_default().to_owned();
            } else if let Some(constructor) = line.strip_prefix("return &") {
                let package = packages.get(constructor.split('.').next().unwrap_or_default());
                groups.extend(package.map(|package| (package.clone(), group.clone())));
            }
        }
        let mut fields = HashMap::new();
        for package in packages.values() {
            let directory = configurations.join(package);
            let Ok(files) = fs::read_dir(&directory) else {
                continue;
            };
            for file in files.flatten() {
                go_fields(package, &read_file(&file.path())?, &mut fields);
            }
        }
        Ok(Self { groups, fields })
    }

    fn write_type(&self, schema_type: &Yaml, out: &mut String) {
        let full = schema_type.text("name").unwrap_or_default();
        if full.starts_with("__") {
            return;
        }
        let name = short_name(full);
        let (package, kind) = name.rsplit_once('.').unwrap_or(("", name));
        let package = package.replace('.', "/");
        let Some(map) = schema_type.get("map").filter(|_| schema_type.get("scalar").is_none()) else {
            let _ = writeln!(out, "{name} {}", self.atom_text(schema_type, ""));
            return;
        };
        let fields = map.get("fields").map(Yaml::items).unwrap_or_default();
        if fields.is_empty() {
            let _ = writeln!(out, "{name} {}", self.atom_text(schema_type, ""));
            return;
        }
        out.push_str(name);
        let has_field = |field_name: &str| fields.iter().any(|field| field.text("name") == Some(field_name));
        if let (true, Some(group)) = (has_field("kind") && has_field("metadata"), self.groups.get(&package)) {
            let version = package.rsplit('/').next().unwrap_or_default();
            let group = if group == "core" { "" } else { group };
            let _ = write!(out, " ={group}/{version}/{kind}");
        }
        if map.text("elementRelationship") == Some("atomic") {
            out.push_str(" !");
        }
        for field in fields {
            let (Some(name), Some(field_type)) = (field.text("name"), field.get("type")) else {
                continue;
            };
            let go = self.fields.get(&format!("{package}.{kind}.{name}"));
            let _ = write!(
                out,
                " {name}:{}",
                self.atom_text(field_type, go.map(String::as_str).unwrap_or_default())
            );
            // Server-side apply needs the default of a field only if the field can be a key of a list. The default of
            // such a field is `TCP` or an empty text, so other defaults are left out.
            if let Some(default @ ("" | "TCP")) = field.text("default") {
                let _ = write!(out, "={default}");
            }
        }
        out.push('\n');
    }

    /// Returns a type in the notation of the generated file, such as `string`, `int32` or `[name]core.v1.EnvVar`.
    fn atom_text(&self, schema_type: &Yaml, go: &str) -> String {
        if let Some(name) = schema_type.text("namedType") {
            return match name {
                "__untyped_atomic_" | "__untyped_deduced_" => "any".to_owned(),
                name => short_name(name).to_owned(),
            };
        }
        let inner = |collection: &Yaml| {
            collection
                .get("elementType")
                .map_or_else(|| "any".to_owned(), |item| self.atom_text(item, go))
        };
        match (
            schema_type.text("scalar"),
            schema_type.get("list"),
            schema_type.get("map"),
        ) {
            (Some("string"), None, None) if go.ends_with("[]byte") => "bytes".to_owned(),
            (Some("numeric"), None, None) => {
                let width = ["int32", "int64", "float64"]
                    .into_iter()
                    .find(|width| go.ends_with(width));
                width.unwrap_or("number").to_owned()
            }
            (Some("untyped"), None, None) => "scalar".to_owned(),
            (Some(scalar), None, None) => scalar.to_owned(),
            (None, Some(list), None) => {
                let keys: Vec<_> = list
                    .get("keys")
                    .map(Yaml::items)
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|key| {
                        if let Yaml::Text(key) = key {
                            Some(key.as_str())
                        } else {
                            None
                        }
                    })
                    .collect();
                let merge = match list.text("elementRelationship") {
                    Some("associative") if keys.is_empty() => "=".to_owned(),
                    Some("associative") => keys.join(","),
                    _ => "!".to_owned(),
                };
                format!("[{merge}]{}", inner(list))
            }
            (None, None, Some(map)) => {
                let is_atomic = map.text("elementRelationship") == Some("atomic");
                format!("{{{}}}{}", if is_atomic { "!" } else { "" }, inner(map))
            }
            _ => "any".to_owned(),
        }
    }
}

fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("io.k8s.api.").unwrap_or(name);
    name.strip_prefix("io.k8s.apimachinery.pkg.apis.").unwrap_or(name)
}

/// Collects the fields of the apply configurations in a Go file. The keys of `fields` are `package.type.field`.
fn go_fields(package: &str, text: &str, fields: &mut HashMap<String, String>) {
    let mut type_name = "";
    for line in text.lines() {
        if let Some(declaration) = line.strip_prefix("type ") {
            type_name = declaration.split("ApplyConfiguration").next().unwrap_or_default();
        } else if let Some((field, tag)) = line.split_once("`json:\"") {
            let name = tag.split([',', '"']).next().unwrap_or_default();
            let kind = field.split_whitespace().last().unwrap_or_default();
            fields.insert(format!("{package}.{type_name}.{name}"), kind.to_owned());
        }
    }
}
