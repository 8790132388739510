// SPDX-License-Identifier: MPL-2.0

//! Names with a meaning for printf, a shell, URIs, TOML, HTML, XML, CSV, JSON or GStreamer.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{Ended, hipvmaf};

/// Parts of names. Each one is a name, and so is each pair of neighbours.
const PARTS: [&str; 95] = [
    "%",
    "%s",
    "%n",
    "%d",
    "%05d",
    "%%",
    "%20",
    "%2F",
    "%00",
    "%ff",
    "%zz",
    "100%",
    "a%sb",
    "a%nb",
    "%1$s",
    "%.1000000d",
    "'",
    "\"",
    "`",
    "''",
    "\\",
    "\\\\",
    "\\n",
    "\\0",
    "\n",
    "\r",
    "\t",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{1}",
    " ",
    "  ",
    "a b",
    "-",
    "--",
    "-h",
    "--help",
    "--json",
    "-x y",
    "#",
    "?",
    "&",
    "#?&",
    "?a=b&c=d",
    "=",
    "==",
    ";",
    ",",
    ",,",
    ":",
    "::",
    "a:b",
    "C:",
    "file:x",
    "file:",
    "http:",
    "test:",
    "x264:",
    "@",
    "user@host",
    "!",
    " ! ",
    "fakesink",
    "$HOME",
    "$(id)",
    "`id`",
    "|",
    "<",
    ">",
    "<b>",
    "<script>",
    "<!--",
    "]]>",
    "&amp;",
    "&#0;",
    "{",
    "}",
    "{}",
    "[",
    "]",
    "[a]",
    "(",
    ")",
    "(string)x",
    "*",
    "**",
    "~",
    "^",
    "é",
    "日本語",
    "\u{202e}abc",
    "\u{feff}",
    "🎬",
    "NaN",
    "null",
];

/// Returns a grey film of two frames.
fn film() -> Vec<u8> {
    let mut film = b"YUV4MPEG2 W48 H48 F25:1 Ip A1:1 C420jpeg\n".to_vec();
    for _ in 0..2 {
        film.extend(b"FRAME\n");
        film.extend([128; 48 * 48 * 3 / 2]);
    }
    film
}

/// Returns the names that are possible for files.
fn names() -> BTreeSet<String> {
    let pairs = PARTS.windows(2).map(|pair| pair.concat());
    let long = ["x".repeat(200), "é".repeat(100), "%s".repeat(100)];
    PARTS.iter().map(|part| (*part).to_owned()).chain(pairs).chain(long).collect()
}

/// Runs the program with a name at each possible place: as a folder, a file and outputs.
fn score(folder: &Path, input: &str, outputs: &[String; 2]) -> Ended {
    let [results, report] = outputs;
    let mut program = hipvmaf("score");
    program.current_dir(folder).args(["--backend", "cpu", "--pair", "number", "--json", "--worst", "1"]);
    program.arg(format!("--results={results}")).arg(format!("--report={report}"));
    program.args(["--", "film.y4m", input]);
    Ended::of(program)
}

/// Each file is read and written under its own name, and no other file is touched.
#[test]
fn any_name_is_the_name_of_a_file() {
    let names: Vec<_> = names().into_iter().collect();
    assert!(names.len() > 180, "{}", names.len());
    std::thread::scope(|scope| {
        for part in names.chunks(names.len().div_ceil(4)) {
            scope.spawn(move || part.iter().for_each(|name| check(name)));
        }
    });
}

fn check(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("film.y4m"), film()).unwrap();
    // A name neither ends the options nor is one.
    let input = format!("./{name}/{name}.y4m");
    fs::create_dir(folder.join(name)).unwrap();
    fs::write(folder.join(&input), film()).unwrap();
    let outputs = ["json", "html"].map(|ending| format!("./{name}/{name}.{ending}"));
    let ended = score(folder, &input, &outputs);
    assert_eq!(ended.status.code(), Some(0), "{name:?}: {}", ended.stderr);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["renditions"][0]["video"]["input"], input.as_str());
    assert_eq!(printed["renditions"][0]["label"], format!("{name}.y4m"));
    let results: Value = serde_json::from_slice(&fs::read(folder.join(&outputs[0])).unwrap()).unwrap();
    assert_eq!(results["streams"]["label"], format!("{name}.y4m"));
    assert_eq!(results["frames"].as_array().unwrap().len(), 2, "{name:?}");
    let page = fs::read_to_string(folder.join(&outputs[1])).unwrap();
    assert!(!page.contains("<b>.y4m") && !page.contains("<script>.y4m"), "{name:?}");
    assert_eq!(fs::read(folder.join(&input)).unwrap(), film(), "{name:?}");
    let written = fs::read_dir(folder.join(name)).unwrap().count();
    assert_eq!((written, fs::read_dir(folder).unwrap().count()), (3, 2), "{name:?}");
}

/// Returns every fourth name that is possible for a title, and those with a meaning for shells.
pub fn some_names() -> Vec<String> {
    let names = names().into_iter().filter(|name| !name.starts_with('.'));
    let tells = |name: &String| name.chars().any(|c| "'\"`$\\\n%-#".contains(c));
    names
        .enumerate()
        .filter(|(i, name)| i % 7 == 0 || (i % 3 == 0 && tells(name)))
        .map(|(_, name)| name)
        .collect()
}

/// Writes a list of titles with these names, whose films have the same names.
pub fn list(folder: &Path, names: &[String]) -> OsString {
    let lines = names.iter().map(|name| {
        let [reference, distorted] = ["r", "d"].map(|side| format!("./{name}/{name}.{side}.y4m"));
        fs::create_dir_all(folder.join(name)).unwrap();
        for file in [&reference, &distorted] {
            fs::write(folder.join(file), film()).unwrap();
        }
        let title =
            serde_json::json!({ "name": name, "reference": reference, "distorted": distorted, "pair": "time" });
        format!("{title}\n")
    });
    let path = folder.join("list");
    fs::write(&path, lines.collect::<String>()).unwrap();
    path.into()
}

#[test]
fn titles_may_have_any_name() {
    let folder = tempfile::tempdir().unwrap();
    // A plan refuses control characters, such as line ends.
    let mut names = some_names();
    names.retain(|name| !name.chars().any(char::is_control));
    assert!(names.len() > 40, "{}", names.len());
    let list = list(folder.path(), &names);
    // The folders of the plan and the results as well.
    let (plan, out) = ("-x $(touch a) 'p'", "--out \"%d\" `touch b`");
    let archive = |command: &str, more: &[&str]| {
        let mut program = hipvmaf("archive");
        program.current_dir(folder.path()).arg(command).args(more);
        program
    };
    let mut program = archive("plan", &[&format!("--output={plan}")]);
    program.arg(&list);
    let ended = Ended::of(program);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(&format!("{0} titles, {0} chunks", names.len())), "{}", ended.stdout);
    let ended = Ended::of(archive("run", &["--jobs", "4", "--backend=cpu", "--", plan]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let ended = Ended::of(archive("merge", &[&format!("--output={out}"), "--", plan]));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let merged: BTreeSet<_> =
        fs::read_dir(folder.path().join(out)).unwrap().map(|file| file.unwrap().file_name()).collect();
    let results = names.iter().map(|name| format!("{name}.json").into());
    let expected: BTreeSet<OsString> = results.chain(["summary.csv".into(), "summary.html".into()]).collect();
    assert_eq!(merged, expected);
    assert!(!folder.path().join("a").exists() && !folder.path().join("b").exists());
}

/// Writes a shell script.
fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Slurm and Ray get the folders as they were given. Scripts replace both.
#[test]
fn schedulers_are_given_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let [bin, work] = ["bin", "work"].map(|name| folder.path().join(name));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&work).unwrap();
    // Each task runs at once, and has a number as its name.
    program(&bin, "squeue", "");
    program(
        &bin,
        "sbatch",
        "cat > \"$LOG.script\"; SLURM_ARRAY_TASK_ID=0 sh \"$LOG.script\" >> \"$LOG\" 2>&1; echo $? >> \"$LOG\"; echo 7\n",
    );
    program(&bin, "python3", "shift 2; exec \"$PYTHON\" -c \"$STUB\" \"$MODULE\" \"$@\"\n");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // Ray runs each task at once.
    let stub = "import sys, types, runpy\nray = types.ModuleType('ray'); errors = types.ModuleType('ray.exceptions')\n\
                errors.RayError = ValueError; ray.init = lambda **_: types.SimpleNamespace(dashboard_url=None)\n\
                def remote(**_):\n  def task(f):\n    t = types.SimpleNamespace(); t.options = lambda **_: types.SimpleNamespace(remote=f); return t\n  return task\n\
                ray.remote = remote; ray.get = lambda done: done; ray.wait = lambda all: ([all[0]], all[1:])\n\
                sys.modules.update({'ray': ray, 'ray.exceptions': errors}); sys.argv = sys.argv[1:]\n\
                runpy.run_path(sys.argv[0], run_name='__main__')";
    let python =
        ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|path| Path::new(path).exists());
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/hipvmaf_ray.py");
    let names = [
        "it's",
        "-x",
        "$(touch a)",
        "`touch b`",
        "a\"b",
        "a b",
        "%j %%",
        "#?&;",
        "\u{202e}",
        "back\\slash",
        "*",
    ];
    for (i, name) in names.iter().enumerate() {
        let (plan, out) = (format!("{name} plan"), format!("{name} out"));
        let list = list(&work, &["film".into(), (*name).into()]);
        let mut command = hipvmaf("archive");
        command.current_dir(&work).arg("plan").arg(&list).arg(format!("--output={plan}"));
        let ended = Ended::of(command);
        assert_eq!(ended.status.code(), Some(0), "{name:?}: {}", ended.stderr);
        let log = folder.path().join("log");
        let ray = i % 2 == 1 && python.is_some();
        let mut command = hipvmaf("archive");
        command.current_dir(&work).args([
            "submit",
            "--on",
            if ray { "ray" } else { "slurm" },
            "--backend=cpu",
            "--tasks=1",
        ]);
        command.arg(format!("--output={out}")).arg(format!("./{plan}"));
        command.env("PATH", &path).env("LOG", &log).env("STUB", stub).env("MODULE", &module);
        command.env("PYTHON", python.unwrap_or_default());
        let ended = Ended::of(command);
        let said = fs::read_to_string(&log).unwrap_or_default() + &ended.stderr + &ended.stdout;
        assert_eq!(ended.status.code(), Some(0), "{name:?}: {said}");
        for title in ["film", *name] {
            assert!(work.join(&out).join(format!("{title}.json")).exists(), "{name:?}: {said}");
        }
        assert!(!work.join("a").exists() && !work.join("b").exists(), "{name:?}");
    }
}

/// Missing files, invalid URIs and invalid UTF-8 are errors, not crashes.
#[test]
fn names_of_nothing_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("film.y4m"), film()).unwrap();
    let long = "x".repeat(5000);
    for name in [
        "",
        "/",
        ".",
        "..",
        "~",
        "://",
        "a://",
        "file://",
        "file:///",
        "file:///%",
        "file:///%zz",
        "file:///%00",
        "file:///nowhere/%25s%25n",
        "http://",
        "http://[::1",
        "http://[::1]:1/a%sb.mp4",
        "http://[::1]:99999/",
        "http://127.0.0.1:1/%n?a=%s#f",
        "https://u:p@[::1]:1/x",
        "rtsp://\"'<>",
        "imagesequence://%s",
        "%s",
        "a%nb/%d.png",
        "none_%05d.png",
        "dvd://",
        "v4l2:///dev/null",
        "data:,",
        &long,
    ] {
        let mut program = hipvmaf("score");
        program.current_dir(folder.path()).args(["--backend", "cpu", "--", "film.y4m", name]);
        let ended = Ended::of(program);
        assert_eq!(ended.status.code(), Some(1), "{name:?}: {}", ended.stderr);
    }
    let mut program = hipvmaf("score");
    program.arg("film.y4m").arg(OsString::from_vec(b"film\xff.y4m".to_vec()));
    assert_eq!(Ended::of(program).status.code(), Some(2));
}

/// Escapes in `file:` URIs are decoded, and credentials in other URIs are never shown.
#[test]
fn uris_are_read_as_uris() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("film.y4m"), film()).unwrap();
    fs::write(folder.join("a %s#?é.y4m"), film()).unwrap();
    let uri = format!("file://{}/a%20%25s%23%3F%C3%A9.y4m", folder.display());
    let outputs = ["r.json", "r.html"].map(str::to_owned);
    let ended = score(folder, &uri, &outputs);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    for secret in
        ["http://me:hunter22@127.0.0.1:1/film.mp4?token=abcdefgh", "rtmp://127.0.0.1:1/live/hunter22"]
    {
        let ended = score(folder, secret, &outputs);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        for part in ["hunter22", "abcdefgh"] {
            assert!(!ended.stderr.contains(part) && !ended.stdout.contains(part), "{}", ended.stderr);
        }
    }
}
