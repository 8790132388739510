// SPDX-License-Identifier: MPL-2.0

//! Rows of results files survive: a failure, a full disk, a pad that is released and requested again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gst::prelude::*;
use serde_json::Value;

use crate::common::gate::Gate;
use crate::common::rig::Rig;
use crate::common::{FRAME, Input, coarse, is_asleep, moving, score, sides, thread_id, until};
use crate::process::{Function, command, functions, passes};

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    an_error_leaves_its_rows_in_a_file_that_says_so,
    the_format_is_that_of_the_extension_unless_set,
    two_elements_do_not_write_one_file,
    a_killed_run_leaves_its_rows,
    a_frame_that_must_not_be_missing_leaves_the_rows_before,
    a_full_disk_leaves_whole_rows,
    files_are_named_by_label_and_can_be_read_alone,
    a_pad_that_goes_leaves_the_rows_of_all_its_pairs,
    a_pad_that_comes_again_has_a_file_of_its_own,
    a_run_without_pairs_says_that_it_leaves_an_older_file,
    the_psnr_of_the_whole_stream_is_that_of_all_its_frames,
    statistics_are_read_when_a_file_fails,
    what_comes_after_the_end_and_a_seek_is_added,
    a_file_that_cannot_be_added_to_is_left_with_a_warning
];

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] = functions![killed, writer];

/// Returns the names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the numbers of the frames in a results file.
fn rows(path: &Path) -> Vec<u64> {
    json(path)["frames"].as_array().unwrap().iter().map(|frame| frame["frameNum"].as_u64().unwrap()).collect()
}

/// Returns the input with another size from this frame on.
fn growing(good: &Input, since: usize) -> Input {
    let large = Input::drawn_at((96, 64), good.0.len(), |t, x, y| coarse(moving(t, x, y)));
    Input([&good.0[..since], &large.0[since..]].concat())
}

/// Plays a video that cannot be scored from its eighth frame on. Returns the error, and the numbers of the frames whose scores
/// were posted.
fn fail(path: &Path, format: &str) -> (String, Vec<u64>) {
    let both = sides(12);
    let properties = [("results-filename", path.to_str().unwrap()), ("results-format", format)];
    let rig = Rig::offline(&properties).play();
    let failure = rig.run(&[("ref_sink", &both.0), ("dist_sink", &growing(&both.1, 8))]).unwrap_err();
    let scored = rig.log().report.frames.iter().map(|frame| frame.index as u64).collect();
    (failure.text, scored)
}

fn an_error_leaves_its_rows_in_a_file_that_says_so() {
    for (format, name) in [("json", "results.json"), ("xml", "results.xml"), ("csv", "results.csv")] {
        let folder = tempfile::tempdir().unwrap();
        let (error, scored) = fail(&folder.path().join(name), format);
        assert_eq!(scored, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(names(folder.path()), [format!("{name}.partial")]);
        let path = folder.path().join(format!("{name}.partial"));
        let text = fs::read_to_string(&path).unwrap();
        // The file names the reason of the error: the sizes.
        assert!(error.contains("96x64"), "{error}");
        match format {
            "json" => {
                assert_eq!(rows(&path), scored);
                assert!(json(&path)["incomplete"].as_str().unwrap().contains("96x64"));
            }
            "xml" => {
                let reason = text.lines().find(|line| line.contains("<incomplete reason=\"")).unwrap();
                assert!(reason.contains("96x64") && text.trim_end().ends_with("</VMAF>"), "{text}");
                assert_eq!(text.matches("<frame frameNum=").count(), scored.len());
            }
            _ => {
                let lines: Vec<_> = text.lines().collect();
                assert_eq!(lines.len(), 1 + scored.len() + 1);
                let last = lines.last().unwrap();
                assert!(last.starts_with("# incomplete: ") && last.contains("96x64"), "{last}");
                assert!(lines[8].starts_with("7,"), "{text}");
            }
        }
    }
}

/// The extension gives the format, and `results-format` overrides it.
fn the_format_is_that_of_the_extension_unless_set() {
    let both = sides(4);
    let folder = tempfile::tempdir().unwrap();
    let begins = |name: &str, format: &str| {
        let path = folder.path().join(name);
        let properties = [("results-filename", path.to_str().unwrap()), ("results-format", format)];
        score(&properties, &both.0, &both.1).unwrap();
        fs::read_to_string(path).unwrap().chars().take(5).collect::<String>()
    };
    for (name, format, begin) in [
        ("r.xml", "none", "<VMAF"),
        ("r.XML", "none", "<VMAF"),
        ("r.csv", "none", "Frame"),
        ("r.json", "none", "{\n  \""),
        ("results", "none", "{\n  \""),
        ("other.xml", "csv", "Frame"),
    ] {
        assert_eq!(begins(name, format), begin, "{name}, {format}");
    }
}

fn two_elements_do_not_write_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let first = Rig::offline(&[("results-filename", &path("results.json"))]).play();
    let both = sides(4);
    let failure = score(&[("results-filename", &path("./results.json"))], &both.0, &both.1).unwrap_err();
    assert!(failure.text.contains("another element is writing it"), "{}", failure.text);
    first.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
    assert_eq!(names(folder.path()), ["results.json"]);
    // Once the first element has ended, its file can be replaced.
    drop(first);
    score(&[("results-filename", &path("results.json"))], &both.0, &both.1).unwrap();
}

/// A process that is killed leaves the rows up to then, and the next run names the file.
fn a_killed_run_leaves_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    let mut child =
        command("keep::killed", &[("HIPVMAF_TEST_RESULTS", path.to_str().unwrap())]).spawn().unwrap();
    let partial = folder.path().join("results.csv.partial");
    let rows =
        |path: &Path| fs::read_to_string(path).map_or(0, |text| text.lines().count().saturating_sub(1));
    // All frames so far are scored, and more may follow.
    until(|| rows(&partial) == 11);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(folder.path()), ["results.csv.partial"]);
    let both = sides(4);
    let rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]).play();
    rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
    assert_eq!(rows(&path), 4);
    let kept = folder.path().join("results.csv.partial.1");
    assert_eq!(rows(&kept), 11);
    let warnings = rig.log().warnings.clone();
    assert!(warnings.len() == 1 && warnings[0].contains(kept.to_str().unwrap()), "{warnings:?}");
}

fn killed() {
    let path = std::env::var("HIPVMAF_TEST_RESULTS").unwrap();
    let both = sides(12);
    let rig = Rig::offline(&[("results-filename", &path)]).play();
    rig.push_pairs(&both.0.0, &both.1.0);
    // The last frame has no score, because its stream does not end.
    std::thread::park();
}

fn a_frame_that_must_not_be_missing_leaves_the_rows_before() {
    let both = sides(12);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let properties = [("results-filename", path.to_str().unwrap()), ("missing-frame", "error")];
    let rig = Rig::offline(&properties).with_renditions(&["other"]).play();
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &both.1.keep(|t| t != 6))];
    rig.run(&inputs).unwrap_err();
    assert_eq!(names(folder.path()), ["results.json.partial", "results.other.json.partial"]);
    for (name, pad) in [("results.json.partial", "dist_sink"), ("results.other.json.partial", "dist_0")] {
        let path = folder.path().join(name);
        let log = rig.log();
        let scored = log.report.frames.iter().filter(|frame| frame.pad == pad);
        let scored: Vec<_> = scored.map(|frame| frame.index as u64).collect();
        assert!(scored.len() >= 5, "{scored:?}");
        assert_eq!(rows(&path), scored, "{name}");
        assert!(json(&path)["incomplete"].as_str().unwrap().contains("missing-frame"));
    }
}

/// A full disk, simulated by a limit on the size of files.
fn a_full_disk_leaves_whole_rows() {
    for policy in ["warning", "error"] {
        let folder = tempfile::tempdir().unwrap();
        let into = ("HIPVMAF_TEST_FOLDER", folder.path().to_str().unwrap());
        let text = passes("keep::writer", &[into, ("HIPVMAF_TEST_POLICY", policy)]);
        let said = format!("writer {policy} ");
        let error = text.lines().find_map(|line| line.split_once(&said)).expect("an error or a warning").1;
        for said in ["results.json", "results.json.partial", "too large"] {
            assert!(error.contains(said), "`{said}` is not in: {error}");
        }
        assert_eq!(names(folder.path()), ["results.json.partial"]);
        let path = folder.path().join("results.json.partial");
        let rows = rows(&path);
        assert_eq!(rows, (0..rows.len() as u64).collect::<Vec<_>>());
        // The limit leaves room for many rows and the end of the file.
        assert!(fs::metadata(&path).unwrap().len() > LIMIT / 2, "{} rows", rows.len());
        assert!(json(&path)["incomplete"].as_str().unwrap().contains("too large"));
    }
}

/// The maximum size of a file in bytes.
const LIMIT: u64 = 65536;

fn writer() {
    // SAFETY: the structure lives through the call; no other code in this process handles that signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let folder = std::env::var("HIPVMAF_TEST_FOLDER").unwrap();
    let path = Path::new(&folder).join("results.json");
    let policy = std::env::var("HIPVMAF_TEST_POLICY").unwrap();
    let both = sides(400);
    let properties = [("results-filename", path.to_str().unwrap()), ("on-results-error", &policy)];
    let rig = Rig::offline(&properties).play();
    let report = rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]);
    match policy.as_str() {
        // A full disk ends the file, not the scores.
        "warning" => {
            let report = report.unwrap();
            assert_eq!((report.frames.len(), report.buffers.len()), (400, 400));
            println!("\nwriter warning {}", rig.log().warnings.join("\n"));
        }
        _ => println!("\nwriter error {}", report.unwrap_err().text),
    }
}

/// The name of a file has the label of its rendition, and the file names its streams.
fn files_are_named_by_label_and_can_be_read_alone() {
    let both = sides(12);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]).with_renditions(&["a/b", ""]);
    rig.pad("dist_sink").set_property("label", "first");
    let gone = both.1.keep(|t| t != 6);
    let inputs = [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &gone), ("dist_1", &both.1)];
    rig.play().run(&inputs).unwrap();
    assert_eq!(names(folder.path()), ["results.a_b.json", "results.dist_1.json", "results.json"]);
    let json = json(&folder.path().join("results.a_b.json"));
    let streams = &json["streams"];
    assert_eq!((&streams["pad"], &streams["label"]), (&"dist_0".into(), &"a/b".into()));
    for side in ["reference", "distorted"] {
        let said = ["width", "height", "format", "frame_rate"].map(|name| streams[side][name].to_string());
        assert_eq!(said, ["64", "48", "\"I420\"", "\"25/1\""]);
    }
    assert_eq!((&json["frame_counts"]["scored"], &json["frame_counts"]["unpaired"]), (&11.into(), &1.into()));
    assert_eq!((&json["coverage"], &json["offset"]), (&0.916667.into(), &0.into()));
    let times: Vec<_> =
        json["frames"].as_array().unwrap().iter().map(|row| row["timestamp"].as_u64().unwrap()).collect();
    let expected =
        (0..12).filter(|t| *t != 6).map(|t| both.0.0[t].buffer().unwrap().pts().unwrap().nseconds());
    assert_eq!(times, expected.collect::<Vec<_>>());
}

/// The pad is released while its last pair is being computed.
fn a_pad_that_goes_leaves_the_rows_of_all_its_pairs() {
    const FRAMES: usize = 8;
    let both = sides(FRAMES);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let mut rig =
        Rig::offline(&[("results-filename", path.to_str().unwrap())]).with_renditions(&["going"]).play();
    let push = |rig: &Rig, t: usize, last: &gst::Sample| {
        rig.push("dist_0", last);
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    };
    for t in 0..FRAMES - 1 {
        push(&rig, t, &both.1.0[t]);
    }
    // Only the last pair of them is left, which waits for the next.
    rig.wait_scores(2 * (FRAMES - 2));
    let gate = Gate::closed();
    push(&rig, FRAMES - 1, &gate.input(&both.1).0[FRAMES - 1]);
    gate.wait_until_read();
    let (releasing, begun) = (thread_id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The release waits for the last pair, or has not waited and is over.
            until(|| begun.load(Ordering::Acquire) && is_asleep(releasing));
            gate.open();
        });
        begun.store(true, Ordering::Release);
        rig.release("dist_0");
    });
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_0"), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(rows(&folder.path().join("results.going.json")), (0..FRAMES as u64).collect::<Vec<_>>());
    assert_eq!(rows(&path), (0..FRAMES as u64).collect::<Vec<_>>());
}

fn a_pad_that_comes_again_has_a_file_of_its_own() {
    let both = sides(12);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let mut rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]).play();
    for first in [0, 4, 8] {
        assert_eq!(rig.request().name(), "dist_0");
        for t in first..first + 4 {
            rig.push("dist_0", &both.1.0[t]);
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
        rig.wait(|log| log.report.scores_of("dist_0").len() >= first + 3);
        if first < 8 {
            rig.release("dist_0");
        }
    }
    rig.end();
    rig.finish().unwrap();
    let expected = ["results.dist_0-2.json", "results.dist_0-3.json", "results.dist_0.json", "results.json"];
    assert_eq!(names(folder.path()), expected);
    for (name, first) in
        [("results.dist_0.json", 0), ("results.dist_0-2.json", 4), ("results.dist_0-3.json", 8)]
    {
        assert_eq!(rows(&folder.path().join(name)), (first..first + 4).collect::<Vec<_>>(), "{name}");
    }
}

fn a_run_without_pairs_says_that_it_leaves_an_older_file() {
    let both = sides(6);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    fs::write(&path, "of a run before").unwrap();
    let rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]).play();
    let elsewhere = both.1.retimed(|t| Some(gst::ClockTime::from_seconds(100) + FRAME * t as u64));
    let report = rig.run(&[("ref_sink", &both.0), ("dist_sink", &elsewhere)]).unwrap();
    assert_eq!((report.frames.len(), report.buffers.len()), (0, 6));
    rig.element.set_state(gst::State::Null).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "of a run before");
    assert_eq!(names(folder.path()), ["results.json"]);
    let log = rig.log();
    let [warning] = &log.warnings[..] else { panic!("{:?}", log.warnings) };
    assert!(warning.contains(path.to_str().unwrap()), "{warning}");
}

/// Returns the PSNR of the whole stream from the file.
fn aggregate(path: &Path) -> f64 {
    json(path)["aggregate_metrics"]["apsnr_y"].as_f64().unwrap()
}

fn the_psnr_of_the_whole_stream_is_that_of_all_its_frames() {
    const FRAMES: usize = 12;
    // Each frame differs more than the one before.
    let reference = Input::drawn(FRAMES, moving);
    let distorted = Input::drawn(FRAMES, |t, x, y| moving(t, x, y).saturating_add(t as u8 * 3 + 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let properties = [
        ("features", "psnr=enable_apsnr=true"),
        ("scale-method", "bicubic"),
        ("results-filename", path.to_str().unwrap()),
    ];
    score(&properties, &reference, &distorted).unwrap();
    let expected = aggregate(&path);
    let larger = growing(&distorted, 4);
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Rig));
    let changes: [Change; 4] = [
        ("flush", &|rig| {
            rig.flush_all();
            for pad in ["ref_sink", "dist_sink", "dist_0"] {
                rig.begin_segment(pad, FRAME * 4, FRAME * 4);
            }
        }),
        ("another size of the other", &|_| ()),
        ("a new pad", &|rig| {
            rig.request();
        }),
        ("a pad less", &|rig| rig.release("dist_0")),
    ];
    for (change, apply) in changes {
        let mut rig = Rig::offline(&properties).with_renditions(&["other"]).play();
        for t in 0..FRAMES {
            if t == 4 {
                // All pairs were taken.
                rig.wait_scores(6);
                apply(&mut rig);
            }
            let other = if change.starts_with("another") { &larger } else { &distorted };
            for (pad, input) in [
                ("dist_0", other),
                ("dist_1", &distorted),
                ("ref_sink", &reference),
                ("dist_sink", &distorted),
            ] {
                if rig.element.static_pad(pad).is_some() {
                    rig.push(pad, &input.0[t]);
                }
            }
        }
        rig.end();
        assert_eq!(rig.finish().unwrap().scores_of("dist_sink").len(), FRAMES, "{change}");
        rig.element.set_state(gst::State::Null).unwrap();
        assert_eq!(aggregate(&path), expected, "{change}");
    }
}

/// The handler of the message about a results file may read the element's statistics.
fn statistics_are_read_when_a_file_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let properties = [("results-filename", path.to_str().unwrap())];
    let rig = std::mem::ManuallyDrop::new(Rig::offline(&properties));
    let (sender, receiver) = std::sync::mpsc::channel();
    let bus = gst::Bus::new();
    bus.set_sync_handler(move |_, message| {
        if message.type_() == gst::MessageType::Warning {
            let element = message.src().unwrap();
            sender.send(element.property::<gst::Structure>("stats").get::<u64>("frames-unpaired")).unwrap();
        }
        gst::BusSyncReply::Drop
    });
    rig.element.set_bus(Some(&bus));
    rig.element.set_state(gst::State::Playing).unwrap();
    // Nothing is scored, so there are no results.
    rig.end_of("dist_sink");
    rig.push("ref_sink", &sides(1).0.0[0]);
    rig.end_of("ref_sink");
    let unpaired =
        receiver.recv_timeout(Duration::from_secs(60)).expect("the handler is blocked by the element");
    assert_eq!(unpaired, Ok(1));
    drop(std::mem::ManuallyDrop::into_inner(rig));
}

/// Plays to the end, seeks back and plays to the end again: a loop. The second pass is in the file too.
fn what_comes_after_the_end_and_a_seek_is_added() {
    let both = sides(6);
    for (format, section) in [("json", "\"section\": 1"), ("xml", "section=\"1\""), ("csv", ",scored,1,")] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("results.{format}");
        let path = folder.path().join(&name);
        let rig = Rig::offline(&[("results-filename", path.to_str().unwrap())]).play();
        let rows = || {
            fs::read_to_string(&path)
                .unwrap()
                .matches(match format {
                    "json" => "\"frameNum\"",
                    "xml" => "<frame ",
                    _ => ",scored,",
                })
                .count()
        };
        for pass in 0..3 {
            rig.push_pairs(&both.0.0, &both.1.0);
            rig.end();
            rig.finish().unwrap();
            // The file is complete at each end.
            assert_eq!((names(folder.path()), rows()), (vec![name.clone()], 6 * (pass + 1)));
            rig.flush_all();
            for pad in ["ref_sink", "dist_sink"] {
                rig.begin_segment(pad, gst::ClockTime::ZERO, gst::ClockTime::ZERO);
            }
        }
        rig.push_pairs(&both.0.0[..3], &both.1.0[..3]);
        rig.wait_scores(20);
        // The file is complete after a stop as well; the last pair has no score without the next.
        rig.element.set_state(gst::State::Null).unwrap();
        assert_eq!((names(folder.path()), rows()), (vec![name], 20));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(section).count(), 6, "{text}");
        assert_eq!(rig.log().warnings, Vec::<String>::new());
    }
}

/// Another element has begun to write the file since it was completed.
fn a_file_that_cannot_be_added_to_is_left_with_a_warning() {
    let both = sides(6);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let play = || Rig::offline(&[("results-filename", path.to_str().unwrap())]).play();
    let rig = play();
    rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
    let other = play();
    rig.flush_all();
    for pad in ["ref_sink", "dist_sink"] {
        rig.begin_segment(pad, gst::ClockTime::ZERO, gst::ClockTime::ZERO);
    }
    rig.run(&[("ref_sink", &both.0), ("dist_sink", &both.1)]).unwrap();
    let warnings = rig.log().warnings.clone();
    assert!(warnings.len() == 1 && warnings[0].contains("another element is writing it"), "{warnings:?}");
    assert_eq!(rows(&path), (0..6).collect::<Vec<_>>());
    drop(other);
}
