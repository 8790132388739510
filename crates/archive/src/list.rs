// SPDX-License-Identifier: MPL-2.0

//! The list of titles: CSV with the header `name,reference,distorted`, or JSON objects, one after the other or in an
//! array. Further fields are options of `score` by their long names.

use std::collections::HashSet;
use std::path::Path;

use clap::{Args as _, Command};
use serde_json::{Deserializer, Map, Value};

use score::error::Error;

/// One title of the list.
pub struct Entry {
    pub name: String,
    pub reference: String,
    pub distorted: String,
    /// Options of `score` with their values.
    pub options: Vec<(String, String)>,
}

/// Fields that every title has.
const FIELDS: [&str; 3] = ["name", "reference", "distorted"];

/// Longest name in bytes. File systems take names of 255, and results are called NAME.json.
const LONGEST_NAME: usize = 250;

/// Options that belong to a run and not to a title.
const OF_RUN: [&str; 9] =
    ["results", "no-provenance", "report", "worst", "json", "x264", "backend", "threads", "decoder"];

/// Reads a list.
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |why: String| Error::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    // Spreadsheets begin their files with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let records = match text.trim_start().chars().next() {
        None => Ok(vec![]),
        Some('{' | '[') => json(text),
        Some(_) => csv(text),
    };
    let entries: Vec<_> = records.map_err(&failed)?;
    let entries = entries
        .into_iter()
        .enumerate()
        .map(|(i, record)| entry(record).map_err(|why| failed(format!("title {}: {why}", i + 1))));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if entries.is_empty() {
        return Err(failed("it has no titles".into()));
    }
    let mut names = HashSet::new();
    match entries.iter().find(|entry| !names.insert(&entry.name)) {
        Some(entry) => {
            Err(failed(format!("the name {} repeats; each title needs a name of its own", entry.name)))
        }
        None => Ok(entries),
    }
}

type Record = Vec<(String, String)>;

fn csv(text: &str) -> Result<Vec<Record>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    if !header.iter().any(|name| FIELDS.contains(&name)) {
        return Err(
            "its first line is no header; begin the list with name,reference,distorted, separated by commas"
                .into(),
        );
    }
    let records = reader.records().map(|record| {
        let record = record.map_err(|error| error.to_string())?;
        Ok(header.iter().zip(&record).map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    });
    records.collect()
}

fn json(text: &str) -> Result<Vec<Record>, String> {
    type Object = Map<String, Value>;
    let objects = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text),
        false => Deserializer::from_str(text).into_iter().collect::<Result<Vec<Object>, _>>(),
    };
    let records = objects.map_err(|error| error.to_string())?.into_iter().map(|object| {
        let mut record = vec![];
        for (name, value) in object {
            let values = if let Value::Array(values) = value { values } else { vec![value] };
            for value in values {
                record.push((name.clone(), text_of(&name, value)?));
            }
        }
        Ok(record)
    });
    records.collect()
}

/// Returns a JSON value as the text of a field.
fn text_of(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => Err(format!("{name} is neither a value nor a list of values")),
    }
}

fn entry(record: Record) -> Result<Entry, String> {
    let mut fields = FIELDS.map(|name| (name, String::new()));
    let known = score::Args::augment_args(Command::new("score"));
    let mut options = vec![];
    for (name, value) in record {
        if value.is_empty() {
            continue;
        }
        if let Some((_, field)) = fields.iter_mut().find(|(field, _)| *field == name) {
            *field = value;
            continue;
        }
        let option = known.get_arguments().find(|arg| arg.get_long() == Some(&name));
        let Some(option) = option.filter(|_| !OF_RUN.contains(&name.as_str())) else {
            return Err(format!("{name} is no option for a title; hipvmaf help score lists the options"));
        };
        match (option.get_action().takes_values(), value.as_str()) {
            (true, _) => options.push((name, value)),
            (false, "true" | "1") => options.push((name, String::new())),
            (false, "false" | "0") => {}
            (false, _) => return Err(format!("{name} is true or false, not {value}")),
        }
    }
    if let Some((field, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
        return Err(format!("{field} is missing; the header of a list is name,reference,distorted"));
    }
    let [name, reference, distorted] = fields.map(|(_, value)| value);
    if name.contains('/') || name.contains(char::is_control) || name.starts_with('.') {
        return Err(format!(
            "{name:?} cannot be a name: results are files of this name, so it has no slash, no line ends or other control \
             characters, and begins with no dot"
        ));
    }
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "{name:?} cannot be a name: results are files of this name, so it has at most {LONGEST_NAME} bytes, and not {}",
            name.len()
        ));
    }
    Ok(Entry { name, reference, distorted, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<Vec<Entry>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn lists_are_csv_or_json() {
        let csv = "name,reference,distorted,model,model,strict\na,\"r, 1.mp4\",d.mkv,x,,true\nb,r,d,x,y,\n";
        let json = r#"{"name": "a", "reference": "r, 1.mp4", "distorted": "d.mkv", "model": "x", "strict": true}
            {"name": "b", "reference": "r", "distorted": "d", "model": ["x", "y"], "feature": null}"#;
        let array = format!("[{}]", json.replacen("}\n", "},\n", 1));
        let marked = format!("\u{feff}\n{csv}");
        for text in [csv, json, &array, &array.replace(", \"", ",\n\""), &marked] {
            let [a, b] = &entries(text).unwrap()[..] else { panic!("two titles: {text}") };
            assert_eq!(
                (a.name.as_str(), a.reference.as_str(), a.distorted.as_str()),
                ("a", "r, 1.mp4", "d.mkv")
            );
            let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            assert_eq!(a.options, [option("model", "x"), option("strict", "")]);
            assert_eq!(b.options, [option("model", "x"), option("model", "y")]);
        }
    }

    #[test]
    fn lists_that_cannot_be_meant_are_refused() {
        let long = format!("name,reference,distorted\n{},r,d\n", "x".repeat(251));
        assert!(entries(&long.replacen('x', "", 1)).is_ok());
        for (text, why) in [
            ("", "no titles"),
            (" \n", "no titles"),
            ("[]", "no titles"),
            ("name,reference,distorted\n", "no titles"),
            ("a,r,d\n", "no header"),
            ("a,r,d\nb,r,e\n", "no header"),
            ("name;reference;distorted\na;r;d\n", "separated by commas"),
            ("name,reference,distorted\na,r\n", "2 fields"),
            (&long, "at most 250 bytes, and not 251"),
            ("name,reference,distorted\n\"a\nb\",r,d\n", "\"a\\nb\" cannot be a name"),
            ("name,reference,distorted\na\u{1b}[2J,r,d\n", "\\u{1b}"),
            (r#"[{"name": "a", "reference": "r", "distorted": {"path": "d"}}]"#, "distorted is neither"),
            (r#"["a"]"#, "line 1"),
            (r#"{"name": "a", "reference": "r", "distorted": "d"} b"#, "line 1"),
            ("name,reference,distorted\na,r,d\na,r,e\n", "a repeats"),
            ("name,reference,distorted\na/b,r,d\n", "no slash"),
            ("name,reference,distorted\n..,r,d\n", "no dot"),
            ("name,reference\na,r\n", "distorted is missing"),
            ("name,reference,distorted,colour\na,r,d,red\n", "colour is no option"),
            ("name,reference,distorted,results\na,r,d,x.json\n", "results is no option"),
            ("{\"name\": 1", "line 1"),
        ] {
            let error = entries(text).err().unwrap().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
