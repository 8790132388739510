// SPDX-License-Identifier: MPL-2.0

//! The self-test finds a GPU that computes wrong results before it scores, on the software device with each kind of fault.

use std::fs;
use std::path::Path;

use crate::gpu::{Outcome, RDNA, play};
use crate::process::{Function, functions};

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    a_gpu_that_computes_something_else_is_refused,
    what_was_found_out_is_kept,
    without_a_self_test_wrong_scores_are_not_noticed,
    a_start_with_a_gpu_that_has_proven_itself_costs_nothing,
    the_next_gpu_takes_over
];

/// The recording of a graph is empty, and the number of its nodes is unknown.
const EMPTY: &str = "empty:1+,hipGraphGetNodes:801@1+";
/// Silent faults: every kernel from the third on, or one of them; a copy; a table; the recording of a graph.
const FAULTS: [&str; 7] = ["drop:3", "drop:3+", "flip:5", "stale:2", "table:1", "table:2", EMPTY];

const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");

fn played(backend: &str, cache: &Path, environment: &[(&str, &str)]) -> Outcome {
    let base =
        [("HIPVMAF_SELF_TEST", ""), ("XDG_CACHE_HOME", cache.to_str().unwrap()), ("GST_DEBUG", "hipvmaf:4")];
    play(backend, &[&base, environment].concat())
}

fn a_gpu_that_computes_something_else_is_refused() {
    for device in [RDNA, CDNA] {
        for fault in FAULTS {
            let cache = tempfile::tempdir().unwrap();
            let refused = played("hip", cache.path(), &[device, ("SWHIP_FAIL", fault)]).result.unwrap_err();
            for said in ["failed its self-test", "where the CPU has", "_u8", "picture"] {
                assert!(refused.contains(said), "{fault}: {refused}");
            }
        }
    }
}

fn what_was_found_out_is_kept() {
    let expected = play("cpu", &[]).result.unwrap();
    let cache = tempfile::tempdir().unwrap();
    assert!(played("hip", cache.path(), &[RDNA, ("SWHIP_FAIL", "flip:5")]).result.is_err());
    // The failure is remembered, so the GPU is not used without the fault either.
    let outcome = played("auto", cache.path(), &[RDNA]);
    assert_eq!((outcome.result, &*outcome.backend), (Ok(expected), "cpu"), "{}", outcome.log);
    let warned = |line: &str| line.contains("WARN") && line.contains("failed its self-test");
    assert!(outcome.log.lines().any(warned), "{}", outcome.log);
    // `always` runs it again.
    let again = played("hip", cache.path(), &[RDNA, ("HIPVMAF_SELF_TEST", "always")]);
    assert_eq!(again.result, Ok(expected), "{}", again.log);
    assert_eq!(played("hip", cache.path(), &[RDNA]).result, Ok(expected));
}

/// Only the self-test finds these faults.
fn without_a_self_test_wrong_scores_are_not_noticed() {
    let expected = play("cpu", &[]).result.unwrap();
    let wrong = |fault: &&str| {
        let trusted = [("HIPVMAF_SELF_TEST", "never"), RDNA, ("SWHIP_FAIL", fault)];
        play("hip", &trusted).result != Ok(expected)
    };
    let noticed: Vec<_> = FAULTS.into_iter().filter(|fault| fault.contains('+')).filter(wrong).collect();
    assert_eq!(noticed, ["drop:3+", EMPTY], "faults that last are in the scores");
}

fn a_start_with_a_gpu_that_has_proven_itself_costs_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("hipvmaf/self-test");
    let files = || fs::read_dir(&folder).map_or(0, Iterator::count);
    let launches = |environment: &[(&str, &str)]| {
        let report = cache.path().join("report");
        let environment = [environment, &[("SWHIP_REPORT", report.to_str().unwrap())]].concat();
        played("hip", cache.path(), &environment).result.unwrap();
        let report = fs::read_to_string(report).unwrap();
        let line = report.lines().find_map(|line| line.strip_prefix("count launches ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let trusted = launches(&[RDNA, ("HIPVMAF_SELF_TEST", "never")]);
    assert_eq!(files(), 0);
    let first = launches(&[RDNA]);
    assert!(first > trusted && files() == 1, "{first} {trusted}");
    assert_eq!(launches(&[RDNA]), trusted);
    // Another GPU, and another kind of code, are tested anew.
    assert_eq!(launches(&[CDNA]), first);
    assert_eq!(launches(&[RDNA, ("HIPVMAF_GPU_CODE", "gfx11-generic")]), first);
    assert_eq!(files(), 3);
    // A record that cannot be read counts as none.
    for file in fs::read_dir(&folder).unwrap() {
        fs::write(file.unwrap().path(), "{").unwrap();
    }
    assert_eq!(launches(&[RDNA]), first);
    assert_eq!(launches(&[RDNA]), trusted);
    // Without a folder for the records, the test runs each time.
    let nowhere = [RDNA, ("XDG_CACHE_HOME", "/proc/nowhere"), ("HOME", "")];
    assert_eq!(launches(&nowhere), first);
}

/// If the first of two GPUs fails, the second scores. If both fail, the CPU does.
fn the_next_gpu_takes_over() {
    let expected = play("cpu", &[]).result.unwrap();
    let cache = tempfile::tempdir().unwrap();
    let two = [("SWHIP_ARCH", "gfx1100,gfx90a:sramecc+:xnack-"), ("SWHIP_FAIL", "drop:3")];
    let outcome = played("auto", cache.path(), &two);
    assert_eq!((outcome.result, &*outcome.backend), (Ok(expected), "hip"), "{}", outcome.log);
    let went_on = |line: &str| line.contains("scoring on the") && line.contains("gfx90a");
    assert!(outcome.log.lines().any(went_on), "{}", outcome.log);
    let cache = tempfile::tempdir().unwrap();
    let both = [two[0], ("SWHIP_FAIL", "drop:3+")];
    let outcome = played("auto", cache.path(), &both);
    assert_eq!((outcome.result, &*outcome.backend), (Ok(expected), "cpu"), "{}", outcome.log);
}
