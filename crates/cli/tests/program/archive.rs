// SPDX-License-Identifier: MPL-2.0

//! Archives: titles scored in chunks have the same results files as titles scored at once. Errors are reported and
//! leave no wrong file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ended, hipvmaf, run};
use crate::pairs::{Shown, film, timed, write};

/// A film and an encode of it, with B-frames and key frames at other places.
fn clips(folder: &Path, name: &str, caps: &str, frames: u32, muxer: &str, encoder: &str) -> [String; 2] {
    let files = ["film", "encoded"].map(|side| format!("{name}.{side}"));
    let [film, encoded] = files.each_ref().map(|file| folder.join(file).display().to_string());
    let queue = "queue max-size-buffers=0 max-size-time=0 max-size-bytes=0";
    run(&format!(
        "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,{caps} ! tee name=film \
         film. ! {queue} ! {encoder} bitrate=2000 key-int-max=12 ! {muxer} ! filesink location={film} \
         film. ! {queue} ! {encoder} bitrate=60 key-int-max=17 ! {muxer} ! filesink location={encoded}"
    ));
    files
}

const X264: &str = "x264enc speed-preset=superfast bframes=2 b-adapt=false";
const CINEMA: &str = "format=I420,width=322,height=182,framerate=24000/1001";

/// A plan of this list, with chunks of a second.
struct Archive {
    folder: PathBuf,
}

impl Archive {
    fn plan(folder: &Path, list: &str, more: &[&str]) -> Self {
        let path = folder.join("list.csv");
        fs::write(&path, list).unwrap();
        let archive = Self { folder: folder.into() };
        let mut command = hipvmaf("archive");
        command.arg("plan").arg(path).arg("-o").arg(archive.dir()).args(["--chunk", "1"]).args(more);
        let ended = Ended::of(command);
        assert!(ended.status.success(), "{}", ended.stderr);
        archive
    }

    fn dir(&self) -> PathBuf {
        self.folder.join("plan")
    }

    fn command(&self, command: &str, args: &[&str]) -> Command {
        let mut program = hipvmaf("archive");
        program.arg(command).arg(self.dir()).args(args);
        program
    }

    #[track_caller]
    fn ends(&self, command: &str, args: &[&str], code: i32) -> Ended {
        let ended = Ended::of(self.command(command, args));
        assert_eq!(ended.status.code(), Some(code), "{command} {args:?}: {}\n{}", ended.stderr, ended.stdout);
        ended
    }

    #[track_caller]
    fn merge(&self, code: i32) -> Ended {
        let out = self.folder.join("out").display().to_string();
        self.ends("merge", &["-o", &out, "--no-provenance"], code)
    }

    fn merged(&self, name: &str) -> PathBuf {
        self.folder.join(format!("out/{name}.json"))
    }

    fn chunk(&self, chunk: &str) -> PathBuf {
        self.dir().join("chunks").join(format!("{chunk}.jsonl"))
    }

    /// Returns the titles of the manifest.
    fn planned(&self) -> Vec<Value> {
        let manifest = fs::read(self.dir().join("manifest.json")).unwrap();
        serde_json::from_slice::<Value>(&manifest).unwrap()["titles"].as_array().unwrap().clone()
    }

    /// Returns the missing chunks with the reasons.
    fn missing(&self) -> Vec<(String, String)> {
        let ended = Ended::of(self.command("status", &["--json"]));
        let status: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(status["complete"].as_bool(), Some(ended.status.code() != Some(1)));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let titles = status["titles"].as_array().unwrap().iter();
        let missing = titles.flat_map(|title| {
            let problem = title.get("problem").map(|problem| (text(&title["name"]), text(problem)));
            let chunks = title["missing"].as_array().unwrap().iter();
            chunks
                .map(|chunk| (text(&chunk["chunk"]), text(&chunk["why"])))
                .chain(problem)
                .collect::<Vec<_>>()
        });
        missing.collect()
    }

    /// Returns the results file of the entire title.
    #[track_caller]
    fn whole(&self, [film, encoded]: &[String; 2], options: &[&str]) -> String {
        let path = self.folder.join("whole.json");
        let mut command = hipvmaf("score");
        command.arg(self.folder.join(film)).arg(self.folder.join(encoded)).args(options);
        command.arg("--results").arg(&path).arg("--no-provenance");
        let ended = Ended::of(command);
        assert!([Some(0), Some(4)].contains(&ended.status.code()), "{}", ended.stderr);
        fs::read_to_string(path).unwrap()
    }
}

#[test]
fn merged_files_are_those_of_whole_titles() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut titles = vec![
        (
            clips(folder, "cinema", CINEMA, 90, "matroskamux", X264),
            vec!["--model=vmaf_v0.6.1", "--feature=psnr=enable_apsnr=true", "--feature=float_ssim"],
        ),
        (
            clips(folder, "sports", "format=I420,width=320,height=180,framerate=50/1", 130, "mp4mux", X264),
            vec!["--model=vmaf_v1.0.16_hfr_3d0h", "--model=vmaf_v0.6.1", "--feature=psnr=enable_apsnr=true"],
        ),
    ];
    if gst::ElementFactory::find("x265enc").is_some() {
        let deep = "format=I420_10LE,width=320,height=180,framerate=25/1";
        let x265 = "h265parse ! matroskamux";
        titles.push((
            clips(folder, "deep", deep, 70, x265, "x265enc speed-preset=ultrafast"),
            vec!["--model=vmaf_v1.0.16_3d0h", "--feature=psnr=enable_apsnr=true"],
        ));
    }
    let lines = titles.iter().map(|([film, encoded], options)| {
        let of = |name: &str| options.iter().filter_map(|option| option.strip_prefix(name)).collect::<Vec<_>>();
        serde_json::json!({
            "name": film, "reference": film, "distorted": encoded, "model": of("--model="), "feature": of("--feature=")
        })
    });
    let archive = Archive::plan(folder, &lines.map(|line| format!("{line}\n")).collect::<String>(), &[]);
    assert!(archive.missing().len() >= 3 * titles.len(), "several chunks each: {:?}", archive.missing());
    let said = archive.ends("run", &["--jobs", "2"], 0).stderr;
    let chunks = said.lines().filter(|line| line.contains(" chunks")).count();
    assert!(said.contains(&format!("{chunks} of {chunks} chunks\n")), "{said}");
    assert!(said.contains(" frames per second, ") && said.contains(" left\n"), "{said}");
    assert_eq!(archive.missing(), []);
    archive.merge(0);
    for (files, options) in &titles {
        let whole = archive.whole(files, options);
        assert!(
            whole.contains("\"apsnr_y\": ")
                && whole == fs::read_to_string(archive.merged(&files[0])).unwrap()
        );
    }
    // Existing results are not made again.
    let first = archive.chunk(&format!("{}/1", titles[0].0[0]));
    let made = fs::metadata(&first).unwrap().modified().unwrap();
    archive.ends("run", &[], 0);
    assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), made);
}

/// Writes a film for archives.
fn title(folder: &Path, name: &str, shown: &Shown) {
    let kbits = if name == "film" { 4000 } else { 300 };
    let file = folder.join(format!("{name}.mkv"));
    write(
        shown,
        &format!(
            "{X264} bitrate={kbits} key-int-max=12 ! h264parse ! matroskamux ! filesink location={}",
            file.display()
        ),
    );
}

/// The plan stores how frames are paired, and each chunk uses that.
#[test]
fn titles_that_timestamps_do_not_pair_are_cut_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    const LONG: u32 = 110;
    title(folder, "film", &film(0..LONG));
    let slower = film(0..LONG).into_iter().map(|(number, time)| (number, time * 5 / 4)).collect();
    let half = timed((0..LONG).step_by(2));
    let cases = [
        ("slower", slower, "number", 0.0),
        ("cut", film(12..LONG), "time", -0.48),
        ("joined", film((0..LONG).filter(|number| !(60..63).contains(number))), "picture", 0.0),
        ("half", half, "time", 0.0),
    ];
    for (name, shown, ..) in &cases {
        title(folder, name, shown);
    }
    run(&format!(
        "videotestsrc num-buffers={LONG} pattern=zone-plate kx2=20 ky2=20 kt=5 ! video/x-raw,format=I420,width=128,height=96,framerate=25/1 \
         ! {X264} bitrate=500 ! matroskamux ! filesink location={}",
        folder.join("other.mkv").display()
    ));
    let names = cases.iter().map(|(name, ..)| *name).chain(["other"]);
    let lines = names.map(|name| format!("{name},film.mkv,{name}.mkv,psnr=enable_apsnr=true\n"));
    let list = format!("name,reference,distorted,feature\n{}", lines.collect::<String>());
    let archive = Archive::plan(folder, &list, &[]);
    let titles = archive.planned();
    for (title, (name, _, method, offset)) in titles.iter().zip(&cases) {
        assert!(title["chunks"].as_array().unwrap().len() > 1, "{name}: {}", title["whole"]);
        assert_eq!(title["pairing"]["method"].as_str(), Some(*method), "{name}");
        let found = title["pairing"]["offset"].as_f64().unwrap();
        assert!(*method != "time" || (found - offset).abs() < 0.001, "{name}: {found}");
    }
    let problem = titles[4]["problem"].as_str().unwrap();
    assert!(problem.contains("other.mkv") && titles[4]["chunks"].as_array().unwrap().is_empty(), "{problem}");
    archive.ends("run", &["--jobs", "2"], 1);
    archive.merge(1);
    assert!(!archive.merged("other").exists());
    for (name, ..) in &cases {
        let files = ["film.mkv".to_owned(), format!("{name}.mkv")];
        let whole = archive.whole(&files, &["--feature=psnr=enable_apsnr=true"]);
        let merged = fs::read_to_string(archive.merged(name)).unwrap();
        let differ: Vec<_> =
            whole.lines().zip(merged.lines()).filter(|(whole, merged)| whole != merged).collect();
        assert!(whole == merged, "{name}: {:?}", &differ[..differ.len().min(5)]);
    }
    // Results contain the pairing, as those of the whole title do.
    let out = folder.join("out").display().to_string();
    archive.ends("merge", &["-o", &out], 1);
    let merged: Value = serde_json::from_slice(&fs::read(archive.merged("joined")).unwrap()).unwrap();
    let said = merged["provenance"]["extra"].to_string();
    assert!(said.contains("by picture (confidence") && said.contains("60-62"), "{said}");
    // A changed pairing file is rejected.
    fs::write(archive.dir().join("pairing/cut.json"), "{}").unwrap();
    fs::remove_file(archive.chunk("cut/1")).unwrap();
    let errors = archive.ends("run", &["cut"], 1).stderr;
    assert!(errors.contains("cut.json has changed"), "{errors}");
}

/// A seek beyond the header's duration fails, although the last frame may be there.
#[test]
fn the_last_frame_is_scored_also_behind_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    title(folder, "film", &film(0..110));
    title(
        folder,
        "slower",
        &film(0..110).into_iter().map(|(number, time)| (number, time * 25 / 24)).collect(),
    );
    let list = "name,reference,distorted\nslower,film.mkv,slower.mkv\nitself,slower.mkv,slower.mkv\n";
    let archive = Archive::plan(folder, list, &[]);
    for title in archive.planned() {
        assert!(title["whole"].as_str().unwrap().contains("after the end"), "{title}");
    }
    let files = ["slower.mkv".to_owned(), "slower.mkv".to_owned()];
    let part: Value = serde_json::from_str(&archive.whole(&files, &["--from", "100"])).unwrap();
    assert_eq!(part["frames"].as_array().unwrap().len(), 10);
}

#[test]
fn what_cannot_be_scored_holds_up_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = clips(folder, "cinema", CINEMA, 90, "matroskamux", X264);
    let encoded = fs::read(folder.join(&files[1])).unwrap();
    fs::write(folder.join("short.mkv"), &encoded[..encoded.len() * 7 / 10]).unwrap();
    fs::write(folder.join("text.mkv"), "no video\n".repeat(99)).unwrap();
    let list = "name,reference,distorted\nlost,cinema.film,nowhere.mkv\ntext,cinema.film,text.mkv\n\
                short,cinema.film,short.mkv\n";
    let archive = Archive::plan(folder, list, &["--feature", "psnr=enable_apsnr=true"]);
    let errors = archive.ends("run", &[], 1).stderr;
    assert!(errors.contains("nowhere.mkv") && errors.contains("text.mkv"), "{errors}");
    let missing: Vec<_> = archive.missing().into_iter().map(|(name, _)| name).collect();
    assert_eq!(missing, ["lost", "text"]);
    assert!(archive.merge(1).stderr.contains("short: "), "that it is damaged");
    assert!(!archive.merged("text").exists());
    let whole =
        archive.whole(&["cinema.film".into(), "short.mkv".into()], &["--feature=psnr=enable_apsnr=true"]);
    assert!(!whole.contains("\"unpaired\":0"), "{whole}");
    assert!(whole == fs::read_to_string(archive.merged("short")).unwrap());
}

#[test]
fn damaged_titles_are_reported_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = clips(folder, "cinema", CINEMA, 90, "matroskamux", X264);
    let encoded = fs::read(folder.join(&files[1])).unwrap();
    fs::write(folder.join("short.mkv"), &encoded[..encoded.len() * 7 / 10]).unwrap();
    let archive = Archive::plan(folder, "name,reference,distorted\nshort,cinema.film,short.mkv\n", &[]);
    let chunk = archive.missing()[0].0.clone();
    // With any selection, and if results exist already.
    for args in [&[&*chunk][..], &[&chunk], &["--share", "0/1"], &["--share", "0/1"], &[]] {
        let said = archive.ends("run", args, 4).stderr;
        assert!(said.contains("short.mkv: it is damaged"), "{args:?}: {said}");
    }
    let status = archive.ends("status", &[], 4).stdout;
    assert!(status.contains("it is damaged") && status.contains("1 of 1 titles"), "{status}");
    let out = folder.join("out").display().to_string();
    archive.ends("merge", &["-o", &out], 4);
    let results: Value = serde_json::from_slice(&fs::read(archive.merged("short")).unwrap()).unwrap();
    let damaged = &results["provenance"]["extra"]["damaged"];
    assert!(damaged[0].as_str().unwrap().contains("pictures could be decoded"), "{damaged}");
    assert!(results["damaged"].as_str().unwrap().contains("short.mkv: it is damaged"), "{results:#}");
}

#[test]
fn a_disk_that_is_full_costs_what_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    clips(folder, "large", CINEMA, 60, "matroskamux", X264);
    clips(folder, "small", CINEMA, 12, "matroskamux", X264);
    let list = "name,reference,distorted\nlarge,large.film,large.encoded\nsmall,small.film,small.encoded\n";
    let archive = Archive::plan(folder, list, &[]);
    assert_eq!(archive.missing().len(), 3);
    // Longer files cannot be written, as on a full disk: 20 blocks of 512 bytes.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 20; exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_hipvmaf"));
    limited.args(["archive", "run"]).arg(archive.dir());
    let ended = Ended::of(limited);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let missing = archive.missing();
    let names: Vec<_> = missing.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["large/1", "large/2"], "{missing:?}");
    assert!(missing.iter().all(|(_, why)| why.contains("File too large")), "{missing:?}");
    let left = fs::read_dir(archive.dir().join("work/large")).unwrap().map(|file| file.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["1.failed", "1.lock", "2.failed", "2.lock"], "what takes room is gone");
    let small = archive.chunk("small/1");
    let made = fs::metadata(&small).unwrap().modified().unwrap();
    archive.merge(1);
    assert!(archive.merged("small").exists() && !archive.merged("large").exists());
    archive.ends("run", &[], 0);
    archive.merge(0);
    assert_eq!(fs::metadata(&small).unwrap().modified().unwrap(), made, "it is not scored twice");
}

#[test]
fn changed_inputs_and_boundaries_that_do_not_match_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = clips(folder, "cinema", CINEMA, 90, "matroskamux", X264);
    let archive = Archive::plan(folder, "name,reference,distorted\ncinema,cinema.film,cinema.encoded\n", &[]);
    archive.ends("run", &[], 0);
    // A wrong sample of one side.
    let chunk = archive.chunk("cinema/2");
    let text = fs::read_to_string(&chunk).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let mut head: Value = serde_json::from_str(head).unwrap();
    head["head"]["distorted"][0][1] = "00".into();
    let (rows, _) = rows.trim_end().rsplit_once('\n').unwrap();
    let content = format!("{head}\n{rows}\n");
    let sum = glib::compute_checksum_for_string(glib::ChecksumType::Sha256, &content).unwrap();
    fs::write(&chunk, format!("{content}{{\"sha256\":\"{sum}\"}}\n")).unwrap();
    let (errors, missing) = (archive.merge(1).stderr, archive.missing());
    assert!(errors.contains("chunk cinema/2") && errors.contains("have other samples"), "{errors}");
    assert!(
        errors.contains("repair it with: hipvmaf archive run ") && errors.contains(" cinema/2"),
        "{errors}"
    );
    assert!(!archive.merged("cinema").exists());
    assert!(missing.len() == 1 && missing[0].1.contains("does not go on"), "{missing:?}");
    let said = archive.ends("run", &[], 0).stdout;
    assert!(said.starts_with("cinema/2 repaired: decoded from ") && said.lines().count() == 1, "{said}");
    archive.merge(0);
    assert!(archive.whole(&files, &[]) == fs::read_to_string(archive.merged("cinema")).unwrap());
    // A truncated chunk is not valid.
    fs::write(&chunk, &text[..text.len() - 9]).unwrap();
    assert_eq!(archive.missing(), [("cinema/2".into(), "is not scored yet".into())]);
    fs::remove_file(&chunk).unwrap();
    let mut film = fs::read(folder.join("cinema.encoded")).unwrap();
    *film.last_mut().unwrap() ^= 1;
    fs::write(folder.join("cinema.encoded"), film).unwrap();
    for chunks in [&["cinema/2"][..], &[]] {
        let errors = archive.ends("run", chunks, 1).stderr;
        assert!(errors.contains("cinema.encoded has changed since"), "{errors}");
    }
    assert!(archive.missing()[0].1.contains("cinema.encoded has changed since"));
    let unknown = archive.ends("run", &["cinema/9"], 2).stderr;
    assert!(unknown.contains("cinema/9"), "{unknown}");
}

/// Chunks with different displays would be merged.
#[test]
fn a_display_that_changes_after_planning_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    clips(folder, "cinema", CINEMA, 20, "matroskamux", X264);
    let file = folder.join("display.json");
    let write = |inches: u32| {
        let display = format!(
            r#"{{"mine": {{"name": "Mine", "resolution": [1920, 1080], "viewing_distance_meters": 1, "diagonal_size_inches": {inches},
            "max_luminance": 200, "contrast": 1000}}}}"#
        );
        fs::write(&file, display).unwrap();
    };
    write(24);
    let feature = format!("--feature=cvvdp=display={}", file.display());
    let archive =
        Archive::plan(folder, "name,reference,distorted\ncinema,cinema.film,cinema.encoded\n", &[&feature]);
    write(32);
    let errors = archive.ends("run", &[], 1).stderr;
    assert!(errors.contains("cvvdp has changed since"), "{errors}");
}

#[test]
fn rows_that_change_after_scoring_are_scored_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = clips(folder, "cinema", CINEMA, 60, "matroskamux", X264);
    let archive = Archive::plan(folder, "name,reference,distorted\ncinema,cinema.film,cinema.encoded\n", &[]);
    archive.ends("run", &[], 0);
    let chunk = archive.chunk("cinema/2");
    let text = fs::read_to_string(&chunk).unwrap();
    let row = text.rfind("{\"row\":").unwrap();
    let digit = row + text[row..].find(['1', '2', '3']).unwrap();
    let other = if text[digit..].starts_with('1') { "2" } else { "1" };
    fs::write(&chunk, format!("{}{other}{}", &text[..digit], &text[digit + 1..])).unwrap();
    let why = "its results were changed after it was scored";
    assert_eq!(archive.missing(), [("cinema/2".into(), why.into())]);
    let errors = archive.merge(1).stderr;
    assert!(errors.contains("chunk cinema/2 is missing") && errors.contains(why), "{errors}");
    let summary = fs::read_to_string(folder.join("out/summary.csv")).unwrap();
    assert!(summary.contains("\ncinema,missing,") && summary.contains(why), "{summary}");
    assert_eq!(archive.ends("run", &[], 0).stdout, "cinema/2 scored\n");
    archive.merge(0);
    assert!(archive.whole(&files, &[]) == fs::read_to_string(archive.merged("cinema")).unwrap());
}

/// The index of an MP4 file names frames with which decoders cannot begin.
#[test]
fn boundaries_of_files_with_a_wrong_index_are_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let caps = "format=I420,width=320,height=180,framerate=25/1";
    let files = clips(folder, "film", caps, 110, "mp4mux", X264);
    let path = folder.join(&files[1]);
    let mut file = fs::read(&path).unwrap();
    let at = file.windows(4).rposition(|word| word == b"stss").unwrap() + 8;
    let number = |file: &[u8], at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
    let count = number(&file, at) as usize;
    assert!(count > 2);
    for place in (1..count).map(|i| at + 4 + 4 * i) {
        let wrong = number(&file, place) + 5;
        file[place..place + 4].copy_from_slice(&wrong.to_be_bytes());
    }
    fs::write(&path, file).unwrap();
    let archive = Archive::plan(folder, "name,reference,distorted\nfilm,film.film,film.encoded\n", &[]);
    let said = archive.ends("run", &["--jobs", "2"], 0).stdout;
    assert!(said.contains(" repaired: decoded from "), "{said}");
    archive.merge(0);
    assert!(archive.whole(&files, &[]) == fs::read_to_string(archive.merged("film")).unwrap());
}

#[test]
fn the_summary_lists_all_titles_worst_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    clips(folder, "film", CINEMA, 12, "matroskamux", X264);
    let list = "name,reference,distorted\nlost,film.film,nowhere.mkv\nsame,film.film,film.film\nfilm,film.film,film.encoded\n";
    let archive = Archive::plan(folder, list, &["--feature", "cvvdp", "--feature", "psnr=enable_apsnr=true"]);
    archive.ends("run", &[], 1);
    archive.merge(1);
    let read = |name: &str| fs::read_to_string(folder.join("out").join(name)).unwrap();
    let (summary, page) = (read("summary.csv"), read("summary.html"));
    let rows: Vec<Vec<_>> = summary.lines().map(|line| line.split(',').collect()).collect();
    let names: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["name", "film", "same", "lost"]);
    let places = ["film.json", "same.json", "lost"].map(|name| page.find(name).unwrap());
    assert!(places.is_sorted() && page.contains("nowhere.mkv"), "{page}");
    let results: Value = serde_json::from_str(&read("film.json")).unwrap();
    for (column, value) in [
        ("cvvdp", &results["aggregate_metrics"]["cvvdp"]),
        ("apsnr_y", &results["aggregate_metrics"]["apsnr_y"]),
        ("psnr_y_mean", &results["pooled_metrics"]["psnr_y"]["mean"]),
    ] {
        let at = rows[0].iter().position(|name| *name == column).unwrap();
        let found: f64 = rows[1][at].parse().unwrap();
        assert!((found - value.as_f64().unwrap()).abs() < 2e-6, "{column}: {found}, {value}");
    }
}

/// Differences between videos are known before anything is scored.
#[test]
fn plans_name_videos_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, caps) in [
        ("sdr", "format=I420,colorimetry=bt709"),
        ("deep", "format=I420_10LE,colorimetry=bt709"),
        ("hdr", "format=I420_10LE,colorimetry=bt2100-pq"),
    ] {
        let file = folder.join(name).display().to_string();
        run(&format!(
            "videotestsrc num-buffers=12 pattern=ball ! video/x-raw,{caps},width=320,height=180,framerate=25/1 \
             ! x264enc speed-preset=ultrafast bitrate=300 ! mp4mux ! filesink location={file}"
        ));
    }
    let path = folder.join("list.csv");
    fs::write(
        &path,
        "name,reference,distorted,strict\nrange,sdr,hdr,\ndepth,deep,sdr,\nstrict,deep,sdr,true\n",
    )
    .unwrap();
    let mut command = hipvmaf("archive");
    command.arg("plan").arg(path).arg("-o").arg(folder.join("plan"));
    let ended = Ended::of(command);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("range: cannot be scored: ") && ended.stderr.contains(" is HDR and "),
        "{}",
        ended.stderr
    );
    let depths =
        "its samples are 4:2:0 of 8 bits (I420), and those of the original 4:2:0 of 10 bits (I420_10LE)";
    let noted = ended.stderr.lines().any(|line| line.starts_with("note: depth: ") && line.ends_with(depths));
    assert!(noted, "{}", ended.stderr);
    assert!(ended.stderr.contains("strict: cannot be scored: --strict rejects"), "{}", ended.stderr);
}

#[test]
fn a_run_that_was_killed_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let caps = "format=I420,width=640,height=360,framerate=25/1";
    let files = clips(folder, "film", caps, 120, "mp4mux", X264);
    let archive = Archive::plan(folder, "name,reference,distorted\nfilm,film.film,film.encoded\n", &[]);
    let chunks = archive.missing().len();
    assert!(chunks > 3);
    // In the middle of the first chunk, after its first output.
    let mut child = archive.command("run", &["film/1", "--threads", "1"]).spawn().unwrap();
    let rows = archive.dir().join("work/film/1.rows.partial");
    let begun = Instant::now();
    while !rows.exists() && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is being scored");
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed in the middle");
    let missing = archive.missing();
    assert_eq!(missing.len(), chunks);
    assert!(missing[0].1.contains(&format!("was started by process {}", child.id())), "{missing:?}");
    assert!(!archive.chunk("film/1").exists());
    archive.merge(1);
    archive.ends("run", &["film/1"], 0);
    assert_eq!(archive.missing().len(), chunks - 1);
    archive.ends("run", &["--jobs", "2"], 0);
    archive.merge(0);
    assert!(archive.whole(&files, &[]) == fs::read_to_string(archive.merged("film")).unwrap());
}

#[test]
fn shares_and_what_is_submitted_here_leave_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = clips(folder, "cinema", CINEMA, 120, "matroskamux", X264);
    let archive = Archive::plan(folder, "name,reference,distorted\ncinema,cinema.film,cinema.encoded\n", &[]);
    let names =
        |missing: Vec<(String, String)>| missing.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(archive.missing()), ["cinema/1", "cinema/2", "cinema/3", "cinema/4", "cinema/5"]);
    archive.ends("run", &["--share", "1/2"], 0);
    assert_eq!(names(archive.missing()), ["cinema/1", "cinema/3", "cinema/5"]);
    // A share does not depend on existing results.
    assert!(!archive.ends("run", &["--share", "1/2"], 0).stdout.contains("scored"));
    archive.ends("run", &["--share", "7/8"], 0);
    for wrong in ["2/2", "1", "a/b"] {
        archive.ends("run", &["--share", wrong], 2);
    }
    let out = folder.join("out").display().to_string();
    let submit = |more: &[&str], code| {
        archive.ends("submit", &[&["--no-provenance", "-o", &out], more].concat(), code)
    };
    submit(&["--on", "cluster"], 2);
    submit(&["--on", "local", "--gres", "gpu:1"], 2);
    // A chunk that cannot be scored is tried again, and complete titles are still merged.
    let away = folder.join("away");
    fs::rename(folder.join("cinema.film"), &away).unwrap();
    let errors = submit(&["--on", "local", "--retries", "1"], 1).stderr;
    assert_eq!(errors.matches("error: cinema/5: ").count(), 2, "{errors}");
    assert!(archive.missing().iter().all(|(_, why)| why.contains("cinema.film")), "{:?}", archive.missing());
    fs::rename(&away, folder.join("cinema.film")).unwrap();
    let said = submit(&["--on", "local:2"], 0).stdout;
    let scored: Vec<_> = said.lines().filter(|line| line.ends_with(" scored")).collect();
    assert_eq!(scored.len(), 3, "only those that were missing: {said}");
    assert!(archive.whole(&files, &[]) == fs::read_to_string(archive.merged("cinema")).unwrap());
}

#[test]
fn lists_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv");
    let long = format!("name,reference,distorted\n{},r,d\n", "x".repeat(300));
    for (titles, why) in [
        ("name,reference,distorted\na,r,d\na,r,e\n", "the name a repeats"),
        ("name,reference,distorted\na/b,r,d\n", "no slash"),
        ("name,reference,distorted\n\"a\nb\",r,d\n", "no line ends"),
        (&long, "at most 250 bytes"),
        ("a,r,d\n", "no header"),
        ("", "no titles"),
    ] {
        fs::write(&list, titles).unwrap();
        let mut command = hipvmaf("archive");
        command.arg("plan").arg(&list).arg("-o").arg(folder.path().join("plan"));
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}
