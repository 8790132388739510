// SPDX-License-Identifier: MPL-2.0

//! docs/element.md lists what there is, with its type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst::{Structure, StructureRef};
use gsthipvmaf::{event, message};

use crate::common::{Bench, FRAME, Input, coarse, entries, init, moving, score, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    all_properties_are_listed_with_their_defaults,
    all_events_and_states_are_listed,
    all_fields_are_listed_with_their_types,
    times_that_are_not_there_are_left_out
];

/// The rows of the tables of a section: what stands in backticks in the first cell, with the second cell, or those
/// of several messages one after the other.
fn rows(section: &str) -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/element.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split(" | ").collect();
        for name in cells[0].split('`').skip(1).step_by(2) {
            let types: &mut String = rows.entry(name.to_owned()).or_default();
            *types += &format!("{} ", cells[1].trim_end_matches(" |"));
        }
    }
    assert!(!rows.is_empty());
    rows
}

fn type_name(value: &glib::Value) -> &'static str {
    match value.type_() {
        glib::Type::U64 => "uint64",
        glib::Type::I64 => "int64",
        glib::Type::U32 => "uint",
        glib::Type::I32 => "int",
        glib::Type::F64 => "double",
        glib::Type::BOOL => "boolean",
        glib::Type::STRING => "string",
        other if other == Structure::static_type() => "structure",
        other if other == gst::Sample::static_type() => "sample",
        other => panic!("{other} has no name here"),
    }
}

/// Each field stands in the section under its type. One cell may have several names and types, in order.
#[track_caller]
fn assert_listed(rows: &BTreeMap<String, String>, structure: &StructureRef) {
    for (name, value) in structure.iter() {
        let name = name.as_str();
        let listed = rows.get(name).unwrap_or_else(|| panic!("{name} is not listed"));
        let word = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()) == type_name(value);
        assert!(listed.split(' ').any(word), "{name} is {}, listed as: {listed}", type_name(value));
    }
}

/// Returns the value of a property as the tables write it.
fn text_of(value: &glib::Value) -> String {
    if let Some((_, nick)) = glib::EnumValue::from_value(value) {
        return nick.nick().into();
    }
    match type_name(value) {
        "string" => value.get::<Option<String>>().unwrap().unwrap_or_default(),
        "structure" => String::new(),
        "double" => value.get::<f64>().unwrap().to_string(),
        "boolean" => value.get::<bool>().unwrap().to_string(),
        "int64" => value.get::<i64>().unwrap().to_string(),
        "uint64" => value.get::<u64>().unwrap().to_string(),
        _ => value.transform::<String>().unwrap().get().unwrap(),
    }
}

/// Asserts that the tables of a section list the properties of a new object, each with its default, which is its value.
#[track_caller]
fn assert_properties(section: &str, object: &impl IsA<glib::Object>) {
    let own = object.as_ref().type_();
    let properties = object.list_properties();
    let expected: BTreeMap<_, _> = properties
        .iter()
        .filter(|property| property.owner_type() == own)
        .filter(|property| property.flags().contains(glib::ParamFlags::WRITABLE))
        .map(|property| {
            let default = text_of(property.default_value());
            assert_eq!(text_of(&object.property_value(property.name())), default, "{}", property.name());
            (property.name().to_owned(), default)
        })
        .collect();
    let listed: BTreeMap<_, _> =
        cells(section).into_iter().filter(|(name, _)| expected.contains_key(name)).collect();
    assert_eq!(listed, expected);
    let names: BTreeSet<_> = rows(section).into_keys().collect();
    let all = properties.iter().filter(|property| property.owner_type() == own);
    assert_eq!(names, all.map(|property| property.name().to_owned()).collect());
}

/// Returns the names in the first cells of the tables of a section, each with its part of the second cell. One value may be
/// that of all names of a row.
fn cells(section: &str) -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/element.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut cells = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let values: Vec<_> = columns[2].split(", ").map(plain).collect();
        for (i, name) in columns[1].split('`').skip(1).step_by(2).enumerate() {
            cells.insert(name.to_owned(), values.get(i).unwrap_or(&values[0]).clone());
        }
    }
    cells
}

/// Returns a default as the property has it: times are in seconds in the tables, and some defaults depend on the stream.
fn plain(cell: &str) -> String {
    match cell.trim_matches('`').split_once(' ') {
        Some((seconds, "s")) => format!("{}000000000", seconds),
        Some(("half", _)) => u64::MAX.to_string(),
        Some(("the", _)) => String::new(),
        _ => cell.trim_matches('`').to_owned(),
    }
}

fn all_properties_are_listed_with_their_defaults() {
    init();
    let element = gst::ElementFactory::make("hipvmaf").build().unwrap();
    assert_properties("Properties", &element);
    assert_properties("Properties of distorted pads", &element.static_pad("dist_sink").unwrap());
}

fn all_events_and_states_are_listed() {
    let assert_all = |section: &str, field: &str, names: &[&str]| {
        let listed = &rows(section)[field];
        for name in names {
            assert!(listed.contains(&format!("`{name}`")), "{section} does not list {name}: {listed}");
        }
    };
    let name = |event: &event::Event| event.name();
    assert_all("Events", "event", &event::Event::ALL.iter().map(name).collect::<Vec<_>>());
    let name = |state: &event::EventState| state.name();
    assert_all("Events", "state", &event::EventState::ALL.iter().map(name).collect::<Vec<_>>());
    let name = |state: &message::ScoreState| state.name();
    assert_all("Metadata", "state", &message::ScoreState::ALL.iter().map(name).collect::<Vec<_>>());
}

fn all_fields_are_listed_with_their_types() {
    let properties = [
        ("model-filename", "vmaf_b_v0.6.3"),
        ("conf-interval", "true"),
        ("psnr", "true"),
        ("ssim", "true"),
        ("features", "float_ms_ssim"),
        ("attach-frames", "true"),
        ("window", "200000000"),
        ("window-interval", "200000000"),
        ("alarm-low", "99"),
        ("alarm-hold", "0"),
    ];
    let bench = Bench::new(&properties);
    let dist = bench.element.static_pad("dist_sink").unwrap();
    dist.set_property_from_str("align", "detect");
    let heard = Arc::new(Mutex::new(Vec::<Structure>::new()));
    let hearing = heard.clone();
    bench.pipeline.bus().unwrap().set_sync_handler(move |_, message| {
        if let gst::MessageView::Element(element) = message.view() {
            hearing.lock().unwrap().extend(element.structure().map(|structure| structure.to_owned()));
        }
        gst::BusSyncReply::Pass
    });
    let draw = |t, x, y| moving(t, x % 64, y % 48);
    let reference = Input::drawn_at((176, 176), 60, draw);
    let distorted =
        Input::drawn_at((176, 176), 60, |t, x, y| coarse(draw(t, x, y))).keep(|t| !(20..25).contains(&t));
    let report = bench.run(&reference, &distorted).unwrap();
    let (messages, events) = (rows("Messages"), rows("Events"));
    let mut seen = vec![];
    for structure in heard.lock().unwrap().iter() {
        let rows = if structure.name() == message::NAME { &messages } else { &events };
        assert!([message::NAME, event::NAME].contains(&structure.name().as_str()));
        assert_listed(rows, structure);
        seen.extend(structure.fields().map(|name| name.to_string()));
    }
    for name in ["ci-low", "psnr-y", "ssim", "coverage", "dist-running-time", "threshold", "count"] {
        assert!(seen.iter().any(|seen| seen == name), "{name} was in no message");
    }
    let meta = rows("Metadata");
    for buffer in &report.buffers {
        let custom = gst::meta::CustomMeta::from_buffer(buffer, gsthipvmaf::meta::NAME).unwrap();
        assert_listed(&meta, custom.structure());
        entries(buffer).iter().for_each(|entry| assert_listed(&meta, entry));
    }
    let stats = rows("Statistics");
    assert_listed(&stats, report.stats.as_ref().unwrap());
    assert_listed(&stats, &dist.property::<Structure>("stats"));
}

/// A field that has no time is missing from the message, and is not the number of `GST_CLOCK_TIME_NONE`.
fn times_that_are_not_there_are_left_out() {
    let both = sides(20);
    let report =
        score(&[("window", "200000000"), ("window-interval", "200000000")], &both.0, &both.1).unwrap();
    let window = &report.windows[0];
    assert_eq!((window.timestamp, window.stream_time), (None, None));
    assert_eq!((window.running_time, window.duration), (Some(FRAME * 5), Some(FRAME * 5)));
}
