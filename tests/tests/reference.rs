//! The reference pages of the documentation are what the code says: configuration, metrics.
//!
//! In: the code. Out: nothing when docs/*.md agree with it; else a failure that says how to bring them up to date:
//! `UPDATE_DOCS=1 cargo test -p pgassay-tests --test reference`.

use pgassay::config::Config;
use pgassay::live::Live;
use pgassay::metrics::{Format, Metrics};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- generated: begin -->";
const END: &str = "<!-- generated: end -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
}

/// Compares the part of the page between the marks with `generated`, or writes it there.
fn compare(page: &str, generated: &str) {
    let path = root().join("docs").join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("docs/{page}: {error}"));
    let (head, rest) = text
        .split_once(BEGIN)
        .unwrap_or_else(|| panic!("docs/{page} lacks {BEGIN}"));
    let (old, tail) = rest
        .split_once(END)
        .unwrap_or_else(|| panic!("docs/{page} lacks {END}"));
    let new = format!("\n{}\n", generated.trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{new}{END}{tail}")).expect("the page can be written");
    } else {
        assert_eq!(
            old, new,
            "docs/{page} is not what the code says; run\n  UPDATE_DOCS=1 cargo test -p pgassay-tests --test reference\nand look at the difference"
        );
    }
}

/// Struct → (what it says about itself, its fields with type and comment), as the source has them.
type Structs = BTreeMap<String, (String, Vec<(String, String, String)>)>;

fn structs_of(source: &str) -> Structs {
    let mut structs = Structs::new();
    let (mut comment, mut current) = (Vec::new(), None::<String>);
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default().to_owned();
            structs.insert(name.clone(), (comment.join(" "), Vec::new()));
            comment.clear();
            current = Some(name);
        } else if let (Some(name), Some(field)) = (&current, line.strip_prefix("pub ")) {
            if let Some((field, kind)) = field.trim_end_matches(',').split_once(": ") {
                let fields = &mut structs.get_mut(name).expect("the current struct is known").1;
                fields.push((field.to_owned(), kind.to_owned(), comment.join(" ")));
            }
            comment.clear();
        } else if line == "}" {
            current = None;
            comment.clear();
        } else if !line.starts_with("#[") {
            comment.clear();
        }
    }
    structs
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(unset)".to_owned(),
        Value::Array(list) if list.is_empty() => "`[]`".to_owned(),
        other => format!("`{other}`"),
    }
}

fn row(prefix: &str, field: &(String, String, String), value: &Value) -> String {
    let (name, _, comment) = field;
    assert!(
        !comment.is_empty(),
        "proxy/src/config.rs does not say what {prefix}.{name} means"
    );
    let key = if prefix.is_empty() {
        name.clone()
    } else {
        format!("{prefix}.{name}")
    };
    let variable = format!("PGASSAY_{}", key.replace('.', "_").to_uppercase());
    format!(
        "| `{key}` | {} | {} | `{variable}` |\n",
        shown(value),
        comment.replace('|', "\\|")
    )
}

#[test]
fn configuration() {
    let structs =
        structs_of(&fs::read_to_string(root().join("proxy/src/config.rs")).expect("the configuration"));
    let defaults = serde_json::to_value(Config::default()).expect("a configuration is plain data");
    let header = "| key | default | meaning | variable |\n|---|---|---|---|\n";
    let (mut top, mut sections) = (header.to_owned(), String::new());
    for field in &structs["Config"].1 {
        let (name, kind, _) = field;
        match (&defaults[name], structs.get(kind)) {
            (Value::Object(values), Some((comment, fields))) => {
                sections.push_str(&format!("\n### [{name}]\n\n"));
                if !comment.is_empty() {
                    sections.push_str(&format!("{comment}\n\n"));
                }
                sections.push_str(header);
                for field in fields {
                    let value = values.get(&field.0).unwrap_or(&Value::Null);
                    sections.push_str(&row(name, field, value));
                }
            }
            (value, _) => top.push_str(&row("", field, value)),
        }
    }
    let (comment, fields) = &structs["Webhook"];
    sections.push_str(&format!(
        "\n### [[webhooks]]\n\n{comment}\n\n| key | meaning |\n|---|---|\n"
    ));
    for (name, _, comment) in fields {
        sections.push_str(&format!("| `{name}` | {comment} |\n"));
    }
    compare("configuration.md", &format!("### At the top\n\n{top}{sections}"));
}

#[test]
fn metrics() {
    let text = Metrics::default().render(&Live::new(Config::default()), Format::OpenMetrics);
    let mut families: Vec<(String, String, String)> = Vec::new();
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            families.push((
                name.to_owned(),
                String::new(),
                help.trim_end_matches('.').to_owned(),
            ));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let family = families
                .iter_mut()
                .find(|family| family.0 == name)
                .expect("HELP comes before TYPE");
            family.1 = kind.to_owned();
        } else if let (Some((sample, rest)), Some(family)) = (line.split_once('{'), families.last()) {
            let names = labels.entry(family.0.clone()).or_default();
            let found = rest.split('}').next().unwrap_or_default().split("\",");
            for name in found.filter_map(|pair| pair.split('=').next()) {
                // The buckets of a histogram are no label of ours.
                if name != "le" && !names.iter().any(|known| known == name) && sample.starts_with(&family.0) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    families.sort();
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, kind, help) in &families {
        let name = if kind == "counter" {
            format!("{name}_total")
        } else {
            name.clone()
        };
        let names = labels
            .get(name.trim_end_matches("_total"))
            .cloned()
            .unwrap_or_default();
        let names: Vec<String> = names.iter().map(|label| format!("`{label}`")).collect();
        table.push_str(&format!(
            "| `{name}` | {kind} | {} | {help} |\n",
            names.join(", ")
        ));
    }
    compare("metrics.md", &table);
}
