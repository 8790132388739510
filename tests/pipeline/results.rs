// SPDX-License-Identifier: MPL-2.0

//! Results files, as libvmaf's own tools write them.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, symlink};

use gst::prelude::*;
use serde_json::Value;

use crate::common::clip::{Clip, clips};
use crate::common::{Bench, Report, score_clip, sides};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    json_has_the_scores_of_the_messages,
    results_say_what_made_them,
    results_say_what_the_application_adds,
    csv_and_xml_have_a_row_per_frame,
    the_psnr_of_the_whole_stream_is_an_aggregate,
    a_collection_has_columns_for_its_members,
    the_only_model_is_called_vmaf,
    devices_pipes_and_links_stay_what_they_are,
    a_closed_pipe_is_an_error_of_the_results_file
];

/// Scores a clip with two models and PSNR into a file; returns the file's text.
fn results(clip: &Clip, name: &str, format: &str) -> (Report, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let properties = [
        ("extra-models", "vmaf_v0.6.1neg"),
        ("psnr", "true"),
        ("results-filename", path.to_str().unwrap()),
        ("results-format", format),
    ];
    let report = score_clip(&properties, clip);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the results are left");
    (report, fs::read_to_string(path).unwrap())
}

fn clip() -> Clip {
    clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap()
}

/// Returns all values of a frame, by name.
fn values(report: &Report, t: usize) -> Vec<(&str, f64)> {
    let frame = &report.frames[t];
    frame.features.iter().chain(&frame.models).map(|(name, value)| (name.as_str(), *value)).collect()
}

fn json_has_the_scores_of_the_messages() {
    // JSON is what a results file is unless another format is set.
    for format in ["none", "json"] {
        let clip = clip();
        let (report, text) = results(&clip, "results.json", format);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["frames"].as_array().unwrap().len(), clip.frames);
        for (t, frame) in json["frames"].as_array().unwrap().iter().enumerate() {
            assert_eq!(frame["frameNum"], t);
            assert_eq!(frame["metrics"].as_object().unwrap().len(), values(&report, t).len());
            for (name, value) in values(&report, t) {
                assert_eq!(frame["metrics"][name], format!("{value:.6}").parse::<f64>().unwrap(), "{name}");
            }
        }
        let pooled = &json["pooled_metrics"]["vmaf_v0.6.1"];
        let stats = report.pooled[0].stats;
        for (name, value) in
            [("min", stats.min), ("mean", stats.mean), ("harmonic_mean", stats.harmonic_mean)]
        {
            assert_eq!(pooled[name], format!("{value:.6}").parse::<f64>().unwrap());
        }
    }
}

/// Every results file and the pooled message carry the provenance of the scores.
fn results_say_what_made_them() {
    // As `sha256sum` has it.
    const MODEL: &str = "4d6d66edaabf9dcddeadfcb20b28c0a81728eafa0e29cd775a4425c78a537e0e";
    let clip = clip();
    let (report, text) = results(&clip, "results.json", "json");
    let made_by = serde_json::from_str::<Value>(&text).unwrap()["provenance"].clone();
    assert!(made_by["version"].as_str().unwrap().starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")));
    assert_eq!(made_by["models"]["vmaf_v0.6.1"], MODEL);
    assert_eq!(
        (&made_by["settings"]["psnr"], &made_by["settings"]["subsample"]),
        (&"true".into(), &"1".into())
    );
    let backend = made_by["backend"].as_str().unwrap();
    let details = if backend == "cpu" {
        ["instructions"].as_slice()
    } else {
        &["device", "runtime", "code", "self-test"]
    };
    for detail in details {
        assert!(!made_by[detail].as_str().unwrap().is_empty(), "{detail} in {made_by}");
    }
    let pooled = report.pooled[0].provenance.clone().unwrap();
    assert_eq!(pooled.get::<&str>("backend").unwrap(), backend);
    assert_eq!(
        pooled.get::<gst::ArrayRef>("models").unwrap()[0].get::<String>().unwrap(),
        format!("vmaf_v0.6.1 {MODEL}")
    );
    assert_eq!(pooled.get::<gst::Structure>("settings").unwrap().get::<&str>("scale-method"), Ok("none"));
    for format in ["csv", "xml"] {
        let (_, text) = results(&clip, "results", format);
        assert!(text.contains(MODEL) && text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        assert_eq!(text.contains(&format!("backend=\"{backend}\"")), format == "xml");
    }
}

/// The application can add fields to the provenance, for example about its own processing.
fn results_say_what_the_application_adds() {
    let (reference, distorted) = sides(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let bench = Bench::new(&[("results-filename", path.to_str().unwrap())]);
    let steps = gst::Array::new(["crop <4>", "rate"]);
    let extra = gst::Structure::builder("extra").field("program", "test").field("steps", steps).build();
    bench.element.set_property("extra-provenance", &extra);
    let report = bench.run(&reference, &distorted).unwrap();
    let results: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let expected = serde_json::json!({"program": ["test"], "steps": ["crop <4>", "rate"]});
    assert_eq!(results["provenance"]["extra"], expected);
    let pooled = report.pooled[0].provenance.clone().unwrap();
    let said = pooled.get::<gst::Structure>("extra").unwrap();
    assert_eq!(said.get::<gst::ArrayRef>("steps").unwrap()[1].get::<String>().unwrap(), "rate");
}

fn csv_and_xml_have_a_row_per_frame() {
    let clip = clip();
    let (report, text) = results(&clip, "results.csv", "csv");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!((header[0], header.last()), ("Frame", Some(&"")));
    for (t, line) in lines.enumerate() {
        let row: Vec<&str> = line.split(',').collect();
        assert_eq!(row[0], t.to_string());
        for (name, value) in values(&report, t) {
            let column = header.iter().position(|h| *h == name).unwrap();
            assert_eq!(row[column], format!("{value:.6}"), "{name}");
        }
    }
    assert_eq!(text.lines().count(), clip.frames + 1);

    let (report, text) = results(&clip, "results.xml", "xml");
    assert!(text.contains("qualityWidth=\"176\" qualityHeight=\"144\""));
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("<frame ")).collect();
    assert_eq!(rows.len(), clip.frames);
    for (t, row) in rows.iter().enumerate() {
        assert!(row.contains(&format!("frameNum=\"{t}\"")));
        for (name, value) in values(&report, t) {
            assert!(row.contains(&format!(" {name}=\"{value:.6}\"")), "{name} in {row}");
        }
    }
}

fn the_psnr_of_the_whole_stream_is_an_aggregate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let clip = clip();
    let properties = [("features", "psnr=enable_apsnr=true"), ("results-filename", path.to_str().unwrap())];
    score_clip(&properties, &clip);
    let json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for (name, value) in clip.golden["aggregates"].as_object().unwrap() {
        let printed = format!("{:.6}", value.as_f64().unwrap()).parse::<f64>().unwrap();
        assert_eq!(json["aggregate_metrics"][name], printed, "{name}");
    }
    assert_eq!(json["aggregate_metrics"].as_object().unwrap().len(), 3);
}

fn a_collection_has_columns_for_its_members() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let clip = clip();
    let properties = [("model-filename", "vmaf_b_v0.6.3"), ("results-filename", path.to_str().unwrap())];
    score_clip(&properties, &clip);
    let json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for (t, golden) in clip.golden["bootstrap"]["vmaf_b_v0.6.3"].as_array().unwrap().iter().enumerate() {
        for (name, value) in golden.as_object().unwrap() {
            let name = name.replacen("score", "vmaf", 1);
            let printed = format!("{:.6}", value.as_f64().unwrap()).parse::<f64>().unwrap();
            assert_eq!(json["frames"][t]["metrics"][&name], printed, "{name}");
        }
    }
}

/// The name is the one that ffmpeg and libvmaf write, so that their readers find it.
fn the_only_model_is_called_vmaf() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let report = score_clip(&[("results-filename", path.to_str().unwrap())], &clip());
    let json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(report.frames[0].model, "vmaf_v0.6.1");
    let printed = format!("{:.6}", report.pooled[0].stats.mean).parse::<f64>().unwrap();
    assert_eq!(json["pooled_metrics"]["vmaf"]["mean"], printed);
    assert!(json["provenance"]["models"]["vmaf_v0.6.1"].is_string());
}

/// Renaming a temporary file would replace them by a regular file.
fn devices_pipes_and_links_stay_what_they_are() {
    let clip = clip();
    let folder = tempfile::tempdir().unwrap();
    let [pipe, link, file] = ["pipe", "link", "file"].map(|name| folder.path().join(name));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink(&file, &link).unwrap();
    let write = |path: &std::path::Path, format| {
        let path = path.to_str().unwrap();
        let properties =
            [("results-filename", path), ("results-format", format), ("results-provenance", "false")];
        score_clip(&properties, &clip);
    };
    for format in ["json", "xml", "csv"] {
        write(&link, format);
        write(std::path::Path::new("/dev/null"), format);
        let expected = fs::read_to_string(&file).unwrap();
        let reader = pipe.clone();
        let reader = std::thread::spawn(move || fs::read_to_string(reader).unwrap());
        // A pipe cannot be opened for writing before its reader exists. The reader ends when the last writer closes it.
        let open = || fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).ok();
        let first = std::iter::repeat_with(open).flatten().next();
        write(&pipe, format);
        drop(first);
        assert_eq!(reader.join().unwrap(), expected, "{format}");
    }
    assert!(link.is_symlink() && fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "temporary files are left");
}

/// If the reader of a pipe closes it, the element reports an error of the results file; the process gets no SIGPIPE.
fn a_closed_pipe_is_an_error_of_the_results_file() {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/dev/fd/{}", writer.as_raw_fd());
    let (reference, distorted) = sides(3);
    let bench = Bench::new(&[("results-filename", &path), ("on-results-error", "error")]);
    bench.pipeline.set_state(gst::State::Paused).unwrap();
    drop((reader, writer));
    let failure = bench.run(&reference, &distorted).unwrap_err();
    assert!(failure.text.contains(&path), "{}", failure.text);
}
