// SPDX-License-Identifier: MPL-2.0

//! The GPU backend on the software device of `tests/swhip`, which runs the shipped kernels on the CPU and behaves like
//! AMD's runtime.
//!
//! What a process knows of its GPUs it learns once, so each kind of device gets a process of its own: the tests
//! here start this very program again, with the ignored tests below or with others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The software device, as `make swhip` builds it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"));
    let library = target.expect("tests are built in `target`").join("swhip/libamdhip64.so.6");
    assert!(library.exists(), "no {}: build it with `make swhip`", library.display());
    library
}

/// Runs tests of this program on a software device that the environment describes.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env("HIPVMAF_HIP_LIBRARY", library())
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn assert_passes(output: &Output) {
    let text = text(output);
    assert!(
        output.status.success() && text.contains("test result: ok") && !text.contains(" 0 passed"),
        "{text}"
    );
}

const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");

#[test]
fn features_hold_on_every_kind() {
    for (arch, seed) in [(RDNA, "0"), (CDNA, "2")] {
        let environment = [arch, ("SWHIP_SEED", seed), ("HIPVMAF_TEST_BACKEND", "hip")];
        assert_passes(&run(&["features::"], &environment));
    }
}

/// On either kind of GPU, with blocks and lanes in different orders. `tests/swhip/check` has each kernel in each order.
#[test]
fn sums_are_those_of_the_processor_on_every_kind() {
    for (arch, seed) in [(RDNA, "0"), (CDNA, "3")] {
        assert_passes(&run(&["--ignored", "sums::"], &[arch, ("SWHIP_SEED", seed)]));
    }
}

#[test]
fn a_forked_process_is_told_to_open_the_gpu_itself() {
    let run = run(&["--exact", "gpu::forker", "--ignored", "--test-threads=1"], &[RDNA]);
    assert_passes(&run);
}

#[test]
#[ignore = "started by others, on a device that they describe"]
fn forker() {
    use gpu::{Error, Selection};
    use hipvmaf_engine::backend::BackendError;
    use hipvmaf_engine::backend::hip::Hip;
    let open = || Hip::open(&Selection::default(), 1);
    let parents = open().unwrap();
    // SAFETY: the child calls nothing that other threads of the parent could hold a lock of, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            let refused = matches!(open(), Err(BackendError::Device(Error::Forked)));
            // What the parent has is not given back twice.
            drop(parents);
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the address is valid for a write.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    drop(parents);
}

/// How often the software device was asked for what, by a process that scores so many pairs.
fn counts(pairs: usize) -> BTreeMap<String, u64> {
    let report = std::env::temp_dir().join(format!("hipvmaf-{}-{pairs}.counts", std::process::id()));
    let environment =
        [RDNA, ("SWHIP_REPORT", report.to_str().unwrap()), ("HIPVMAF_TEST_PAIRS", &pairs.to_string())];
    assert_passes(&run(&["--exact", "gpu::scorer", "--ignored"], &environment));
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(report).unwrap();
    let counts = text.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    counts.map(|(what, count)| (what.to_owned(), count.parse().unwrap())).collect()
}

/// So the first pair takes no longer than others, as far as that is up to us.
#[test]
fn nothing_is_left_to_be_set_up_after_prepare() {
    let (none, some) = (counts(0), counts(6));
    let more: Vec<_> = some.iter().filter(|(what, count)| none.get(*what) != Some(count)).collect();
    let sets_up = ["Malloc", "Create", "Instantiate", "Load", "GetFunction", "Free", "Destroy"];
    let set_up: Vec<_> =
        more.iter().filter(|(what, _)| sets_up.iter().any(|name| what.contains(name))).collect();
    assert!(set_up.is_empty(), "{set_up:?}");
    assert!(!more.is_empty(), "no pair was scored: {some:?}");
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn scorer() {
    use std::sync::Arc;

    use gpu::Selection;
    use hipvmaf_engine::backend::hip::Hip;
    use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
    use hipvmaf_engine::model::{Model, ScoreOptions};
    use hipvmaf_engine::plan::Plan;
    use hipvmaf_engine::session::Session;

    let pairs: usize = std::env::var("HIPVMAF_TEST_PAIRS").unwrap().parse().unwrap();
    let geometry = Geometry { width: 96, height: 64, depth: BitDepth::new(8).unwrap(), chroma: None };
    let samples: Vec<u8> = (0..96 * 64 + pairs).map(|i| (i * 7 % 251) as u8).collect();
    let models = vec![Model::load("vmaf_v0.6.1").unwrap()];
    let plan = Arc::new(Plan::new(models, &[], ScoreOptions::default()).unwrap());
    let hip = Hip::open(&Selection::default(), 3).unwrap();
    let mut session = Session::new(plan, Box::new(hip), 1);
    session.prepare(geometry, &[None]).unwrap();
    let mut scored = 0;
    for i in 0..pairs {
        let picture = |at: usize| Picture::packed(&samples[at..], geometry).unwrap();
        session.submit(picture(0), vec![(0, picture(i))]).unwrap();
        if let Some(completion) = session.completion() {
            completion();
        }
        scored += session.collect().unwrap().len();
    }
    session.end_run(0, false);
    assert_eq!(scored + session.collect().unwrap().len(), pairs);
}
