//! Writes the document that lists every key of a node policy: type, default, accepted values, meaning.

use anyhow::{Context, bail};
use koord_crd::node_slo::NodeSloSpec;
use koord_extension::json::shape::{Described, FieldShape, ObjectShape, Shape};
use serde_json::Value;

use super::Output;
use super::policy::{Defaults, accepted};

/// Where it is, relative to the root of the workspace.
const PATH: &str = "docs/node-policy-keys.md";

const HEADER: &str = "\
# Keys of a node policy

Made by `cargo xtask gen` from the types in `api/crd`; do not edit it by hand.

The file is `/etc/koord/node-slo.yaml` (`--node-policy`), shaped as the `spec` of a NodeSLO; [node-policy.md](node-policy.md)
says how to use it and what acts on which key. Everything that has an `enable` is off by default; the other defaults hold once it
is on. `-` is a default that sets nothing. Percentages are whole numbers.
";

/// The objects of classes, which have the same keys.
const CLASSES: [&str; 5] = ["lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"];

/// The document.
pub(super) fn output() -> anyhow::Result<Output> {
    let Shape::Object(spec) = NodeSloSpec::shape() else { bail!("a NodeSLO is no object") };
    let mut writer = Writer { text: HEADER.to_owned(), defaults: Defaults::new()? };
    for field in &spec.fields {
        writer.section(field)?;
    }
    Ok(Output { path: PATH.to_owned(), text: writer.text })
}

struct Writer {
    text: String,
    defaults: Defaults,
}

impl Writer {
    /// A key of the top.
    fn section(&mut self, field: &FieldShape) -> anyhow::Result<()> {
        self.text.push_str(&format!("\n## {}\n\n{}\n", field.key, field.description));
        match &field.shape {
            Shape::Object(object) if field.key == "resourceQOSStrategy" => {
                self.text.push_str("\n### policies\n");
                for inner in object.fields.iter().filter(|inner| !CLASSES.contains(&inner.key)) {
                    let Shape::Object(policies) = &inner.shape else { bail!("{} is no object", inner.key) };
                    self.plain(&[field.key, inner.key], policies)?;
                }
                self.classes(field.key, object)
            }
            Shape::Object(object) => self.plain(&[field.key], object),
            Shape::List(item) => {
                if let Shape::Object(item) = item.as_ref() {
                    self.item(&[field.key], item);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keys with one default each.
    fn plain(&mut self, before: &[&'static str], object: &ObjectShape) -> anyhow::Result<()> {
        self.text.push_str("\n| key | type | default | accepted | meaning |\n|---|---|---|---|---|\n");
        for field in &object.fields {
            let path = [before, &[field.key]].concat();
            let (default, wanted) = (self.default(&path)?, wanted(&path, &field.shape));
            let meaning = meaning(field, &wanted);
            self.row(&[format!("`{}`", field.key), kind(&field.shape).to_owned(), default, wanted, meaning]);
        }
        Ok(())
    }

    /// Keys of classes, with a default for each class.
    fn classes(&mut self, before: &'static str, strategy: &ObjectShape) -> anyhow::Result<()> {
        let classes: Vec<&FieldShape> =
            strategy.fields.iter().filter(|field| CLASSES.contains(&field.key)).collect();
        self.text.push_str("\n### Classes\n\n| key | what it is |\n|---|---|\n");
        for class in &classes {
            self.row(&[format!("`{}`", class.key), class.description.clone()]);
        }
        self.text.push_str("\nAll of them have the keys that follow.\n");
        let Some(Shape::Object(first)) = classes.first().map(|class| &class.shape) else {
            bail!("a NodeSLO has no classes")
        };
        for block in &first.fields {
            let Shape::Object(keys) = &block.shape else { bail!("{} is no object", block.key) };
            self.text.push_str(&format!("\n### {}\n\n{}\n", block.key, block.description));
            let heads: Vec<String> = classes.iter().map(|class| format!("`{}`", class.key)).collect();
            self.text.push_str(&format!("\n| key | type | accepted | {} | meaning |\n", heads.join(" | ")));
            self.text.push_str(&format!("|---|---|---|{}---|\n", "---|".repeat(classes.len())));
            let mut lists = Vec::new();
            for field in &keys.fields {
                let mut cells = vec![format!("`{}`", field.key), kind(&field.shape).to_owned()];
                let wanted = wanted(&[before, classes[0].key, block.key, field.key], &field.shape);
                let meaning = meaning(field, &wanted);
                cells.push(wanted);
                for class in &classes {
                    cells.push(self.default(&[before, class.key, block.key, field.key])?);
                }
                cells.push(meaning);
                self.row(&cells);
                if let Shape::List(item) = &field.shape
                    && let Shape::Object(item) = item.as_ref()
                {
                    lists.push((field.key, item));
                }
            }
            for (key, item) in lists {
                self.text.push_str(&format!("\nItems of `{key}`:\n"));
                self.item(&[before, classes[0].key, block.key, key], item);
            }
        }
        Ok(())
    }

    /// Keys of the items of a list.
    fn item(&mut self, path: &[&'static str], item: &ObjectShape) {
        self.text.push_str("\n| key | type | default | accepted | meaning |\n|---|---|---|---|---|\n");
        self.item_rows(path, "", item);
    }

    fn item_rows(&mut self, path: &[&'static str], before: &str, item: &ObjectShape) {
        for field in &item.fields {
            let key = format!("{before}{}", field.key);
            let default =
                Defaults::of_item(path, field.key).map_or_else(|| "-".to_owned(), |value| shown(&value));
            let words = match &field.shape {
                Shape::Words(words) => listed(words),
                _ => String::new(),
            };
            let kind = kind(&field.shape).to_owned();
            self.row(&[format!("`{key}`"), kind, default, words, field.description.clone()]);
            if let Shape::Object(inner) = &field.shape {
                self.item_rows(path, &format!("{key}."), inner);
            }
        }
    }

    fn default(&self, path: &[&'static str]) -> anyhow::Result<String> {
        match self.defaults.of(path) {
            Some(value) => Ok(shown(&value)),
            // Lists, and objects of any keys, are empty.
            None if path.last().is_some_and(|key| *key == "blocks") => Ok("-".to_owned()),
            None => Err(anyhow::Error::msg("its default is not known")).context(path.join(".")),
        }
    }

    fn row(&mut self, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        // Cells without text are written as tidy wants them: one space.
        let line = cells.iter().fold(String::from("|"), |line, cell| match cell.is_empty() {
            true => line + " |",
            false => line + " " + cell + " |",
        });
        self.text.push_str(&line);
        self.text.push('\n');
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(word) => format!("`{word}`"),
        other => format!("`{other}`"),
    }
}

fn kind(shape: &Shape) -> &'static str {
    match shape {
        Shape::Boolean => "boolean",
        Shape::Int32 | Shape::Int64 => "integer",
        Shape::Number => "number",
        Shape::Text => "text",
        Shape::Words(_) => "word",
        Shape::Quantity => "quantity",
        Shape::IntegerOrText => "integer or text",
        Shape::Time => "time",
        Shape::Anything => "anything",
        Shape::List(_) => "list",
        Shape::Map(_) | Shape::Object(_) => "object",
    }
}

/// The description of a key, without what other cells say.
fn meaning(field: &FieldShape, wanted: &str) -> String {
    let text = match wanted.is_empty() {
        true => field.description.clone(),
        false => field.description.replace(&format!(", {wanted}."), "."),
    };
    match (&field.shape, text.find(" Default ")) {
        (Shape::Words(_), Some(at)) => text[..at].to_owned(),
        _ => text,
    }
}

/// What a key accepts beyond its type.
fn wanted(path: &[&'static str], shape: &Shape) -> String {
    match shape {
        Shape::Words(words) => listed(words),
        Shape::Boolean | Shape::List(_) | Shape::Map(_) | Shape::Object(_) | Shape::Text => String::new(),
        _ => accepted(path).unwrap_or_default().trim_start_matches("a whole number, ").to_owned(),
    }
}

fn listed(words: &[&str]) -> String {
    let words: Vec<String> =
        words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_types_defaults_and_ranges() {
        let text = output().unwrap().text;
        for row in [
            "| `enable` | boolean | `false` | | Whether it is on. |",
            "| `cpuSuppressThresholdPercent` | integer | `65` | 0..100 | CPU used by all pods up to which best-effort pods are given more. |",
            "| `policy` | word | `none` | `none`, `cpuBurstOnly`, `cfsQuotaBurstOnly`, `auto` |",
            "| `groupIdentity` | integer | -1..2 | `2` | `2` | `-1` | `0` | `0` |",
            "| `ioCfg.readLatency` | integer | `3000` | |",
        ] {
            assert!(text.lines().any(|line| line.starts_with(row)), "no row {row}\n{text}");
        }
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_head() {
        let text = output().unwrap().text;
        let mut wanted = 0;
        for line in text.lines() {
            let cells = line.matches(" |").count();
            match line.starts_with('|') {
                false => wanted = 0,
                true if line.starts_with("|---") => assert_eq!(line.matches("---").count(), wanted, "{line}"),
                true if wanted == 0 => wanted = cells,
                true => assert_eq!(cells, wanted, "{line}"),
            }
        }
    }
}
