// SPDX-License-Identifier: MPL-2.0

//! The GPU backend on the software device of `tests/swhip`, which runs the shipped kernels on the CPU and behaves like
//! AMD's runtime.
//!
//! What a process knows of its GPUs it learns once, so each kind of device gets a process of its own: the tests
//! here start this very program again, with the ignored tests below or with others.

#[path = "../../../../tests/swhip/library.rs"]
mod swhip;

use std::collections::BTreeMap;
use std::process::{Command, Output};

use hipvmaf_engine::backend::Backend;
use hipvmaf_engine::backend::hip::{self, Hip, SelfTest};
use hipvmaf_engine::frame::{BitDepth, Geometry};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::{Model, ScoreOptions, builtin};
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::scale::{Method, Scaling};

pub use swhip::library;

/// Runs tests of this program on a software device that the environment describes. It is trusted unless that says
/// otherwise: these tests compare more than a self-test does, and some count calls.
pub fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"))
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .env("HIPVMAF_SELF_TEST", "never")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
pub fn assert_passes(output: &Output) {
    let text = text(output);
    assert!(
        output.status.success() && text.contains("test result: ok") && !text.contains(" 0 passed"),
        "{text}"
    );
}

pub const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");

#[test]
fn features_hold_on_every_kind() {
    for (arch, seed) in [(RDNA, "0"), (CDNA, "2")] {
        let environment = [arch, ("SWHIP_SEED", seed), ("HIPVMAF_TEST_BACKEND", "hip")];
        assert_passes(&run(&["features::"], &environment));
    }
}

/// With blocks and lanes in different orders, and with metrics in branches of a graph. `tests/swhip/check` has each kernel in
/// each order. Two tests, as they take longest and can run at the same time.
#[test]
fn sums_are_those_of_the_processor_on_rdna() {
    assert_passes(&run(&["--ignored", "sums::"], &[RDNA, ("SWHIP_SEED", "0")]));
}

#[test]
fn sums_are_those_of_the_processor_on_cdna() {
    let environment = [CDNA, ("SWHIP_SEED", "3"), ("HIPVMAF_GRAPHS", "branches")];
    assert_passes(&run(&["--ignored", "sums::"], &environment));
}

/// No plan has a GPU refused that computes as it should.
#[test]
fn every_plan_passes_its_self_test() {
    for arch in [RDNA, CDNA] {
        let always = ("HIPVMAF_SELF_TEST", "always");
        let nowhere = [("XDG_CACHE_HOME", "/proc/nowhere"), ("HOME", "")];
        let environment = [&[arch, always], &nowhere[..]].concat();
        assert_passes(&run(&["--exact", "--ignored", "gpu::plans"], &environment));
    }
}

#[test]
#[ignore = "started by others, on a device that they describe"]
fn plans() {
    let models = builtin::names().map(|name| Model::load(name).unwrap()).collect();
    let classic = feature_list::parse("psnr;float_ssim;float_ms_ssim;psnr_hvs;ciede;cambi", &[]).unwrap();
    let classic: Vec<_> = classic.iter().flat_map(|extractor| extractor.features(true)).collect();
    let mut all = Plan::new(models, &classic, ScoreOptions::default()).unwrap();
    all.add_damage();
    let plain = Plan::new(vec![Model::load("vmaf_v0.6.1").unwrap()], &[], ScoreOptions::default()).unwrap();
    let mut hip = Hip::open(&gpu::Selection::default(), 1).unwrap();
    let geometry = |bits, chroma| {
        let depth = BitDepth::new(bits).unwrap();
        Geometry { width: 336, height: 320, depth, chroma }
    };
    let mut passes = |plan: &Plan, geometry, renditions: &[Option<Scaling>]| {
        hip.prepare(&plan.work, geometry, renditions).unwrap();
        assert_eq!(hip.self_test(), Some(SelfTest::Passed));
    };
    let half = Some((168, 160));
    passes(&all, geometry(8, half), &[None; 2]);
    passes(&plain, geometry(10, half), &[None]);
    passes(&plain, geometry(12, None), &[None]);
    passes(&plain, geometry(16, Some((336, 320))), &[None]);
    let small = Geometry { width: 160, height: 128, chroma: Some((80, 64)), ..geometry(8, half) };
    let scaled = Scaling::new(Method::Lanczos, small, geometry(8, half), (true, false)).unwrap();
    passes(&plain, geometry(8, half), &[None, Some(scaled)]);
}

/// Which device a process opens, or why none.
fn opened(environment: &[(&str, &str)]) -> String {
    let output = run(&["--exact", "gpu::opener", "--ignored", "--nocapture"], environment);
    assert_passes(&output);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().find_map(|line| line.split_once("opener: ")).unwrap().1.to_owned()
}

#[test]
#[ignore = "started by others, on devices that they describe"]
fn opener() {
    let ordinal = std::env::var("HIPVMAF_TEST_ORDINAL").ok().map(|ordinal| ordinal.parse().unwrap());
    let vendor = std::env::var_os("HIPVMAF_TEST_AMD").map(|_| gpu::Vendor::Amd);
    let device = hip::open(&gpu::Selection { vendor, ordinal });
    println!(
        "\nopener: {}",
        device.map_or_else(|err| err.to_string(), |device| device.info().ordinal.to_string())
    );
}

const THREE: (&str, &str) = ("SWHIP_ARCH", "gfx1036,gfx1100,gfx90a:sramecc+:xnack-");

/// As on a desktop, where the graphics of the processor come first.
#[test]
fn the_best_device_is_opened() {
    assert_eq!(opened(&[THREE]), "0");
    for (units, best) in [("2i,96,104", "2"), ("2i,96,96", "1"), ("200i,96,60", "1"), ("2i,96i,60i", "1")] {
        assert_eq!(opened(&[THREE, ("SWHIP_UNITS", units)]), best, "{units}");
        assert_eq!(opened(&[THREE, ("SWHIP_UNITS", units), ("HIPVMAF_TEST_ORDINAL", "0")]), "0");
    }
}

#[test]
fn a_device_that_does_not_answer_or_takes_no_code_does_not_hide_the_others() {
    let units = ("SWHIP_UNITS", "104,96,60");
    let faults = [
        "hipDeviceGetName:1@1",
        "hipDeviceGetPCIBusId:1@1",
        // Both forms of the code for the first device.
        "hipModuleLoadData:303@1,hipModuleLoadData:209@2",
        // Another error than that the code is not for it.
        "hipModuleLoadData:1@1",
    ];
    for fault in faults {
        assert_eq!(opened(&[THREE, units, ("SWHIP_FAIL", fault)]), "1", "{fault}");
    }
    // Where it is the one that is wanted, it is named.
    let wanted = [THREE, ("HIPVMAF_TEST_ORDINAL", "0"), ("SWHIP_FAIL", "hipModuleLoadData:303@1+")];
    assert!(opened(&wanted).contains("gfx1036"), "{}", opened(&wanted));
    let none = opened(&[("SWHIP_DEVICES", "0")]);
    assert!(none.contains("libamdhip64") && none.contains("libcuda"), "{none}");
    let none = opened(&[("SWHIP_DEVICES", "0"), ("HIPVMAF_TEST_AMD", "1")]);
    assert!(none.contains("libamdhip64") && !none.contains("libcuda"), "the other vendor was asked: {none}");
    let none = opened(&[THREE, ("SWHIP_FAIL", "hipDeviceGetName:1@1+")]);
    assert!(none.contains("device 0 of") && none.contains("device 2 of"), "{none}");
}

/// Kernels are launched one by one where the runtime makes no graphs, or nobody wants them.
#[test]
fn sums_hold_without_graphs() {
    let fails = |call| ("SWHIP_FAIL", call);
    let cases = [
        (fails("hipStreamBeginCapture:1@1+"), "sums::similarity_equals_the_processors"),
        (fails("hipGraphInstantiate:1@1+"), "sums::similarity_equals_the_processors"),
        (("HIPVMAF_GRAPHS", "off"), "sums::of_every_metric_equal_the_processors"),
    ];
    for ((name, value), test) in cases {
        let report = std::env::temp_dir().join(format!("hipvmaf-{}.graphs", std::process::id()));
        let environment = [RDNA, (name, value), ("SWHIP_REPORT", report.to_str().unwrap())];
        assert_passes(&run(&["--exact", "--ignored", test], &environment));
        let counts = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(report).unwrap();
        assert!(counts.contains("count graph_launches 0"), "{value}: {counts}");
    }
}

/// Events are what the host waits for; by HIP's documentation they hand over no memory unless that is asked for.
fn where_host_memory_is_not_coherent_by_itself(graphs: &str, test: &str) {
    let strict = [RDNA, ("SWHIP_COHERENCE", "strict"), ("SWHIP_SEED", "2"), ("HIPVMAF_GRAPHS", graphs)];
    assert_passes(&run(&["--exact", "--ignored", test], &strict));
}

#[test]
fn sums_hold_where_host_memory_is_not_coherent_by_itself() {
    where_host_memory_is_not_coherent_by_itself("on", "sums::of_groups_equal_the_processors");
}

#[test]
fn sums_hold_without_graphs_where_host_memory_is_not_coherent() {
    where_host_memory_is_not_coherent_by_itself("off", "sums::of_speed_chroma_equal_the_processors");
}

/// The same kernels, in the shapes that they have on NVIDIA's GPUs, behind the driver's contexts.
#[test]
fn sums_are_those_of_the_processor_behind_nvidias_driver() {
    let driver = library("libcuda.so.1");
    let environment = [
        ("HIPVMAF_CUDA_LIBRARY", driver.to_str().unwrap()),
        ("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6"),
        ("SWHIP_SEED", "3"),
    ];
    let test = ["--ignored", "--exact", "sums::of_every_metric_equal_the_processors"];
    assert_passes(&run(&test, &environment));
}

/// Planes come all at once, or one by one where that is wanted.
#[test]
fn copies_are_made_in_batches_unless_they_are_off() {
    let driver = library("libcuda.so.1");
    let batches = |wanted| {
        let environment = [
            ("HIPVMAF_CUDA_LIBRARY", driver.to_str().unwrap()),
            ("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6"),
            ("HIPVMAF_BATCH_COPIES", wanted),
        ];
        let counts = counts(3, &environment);
        ["cuMemcpyBatchAsync", "h2d"].map(|what| counts.get(what).copied().unwrap_or(0))
    };
    let ([some, planes], off) = (batches(""), batches("off"));
    assert!(some > 0, "no batches");
    assert_eq!(off, [0, planes]);
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
fn counts(pairs: usize, device: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let report = std::env::temp_dir().join(format!("hipvmaf-{}-{pairs}.counts", std::process::id()));
    let pairs = pairs.to_string();
    let more = [("SWHIP_REPORT", report.to_str().unwrap()), ("HIPVMAF_TEST_PAIRS", &pairs)];
    assert_passes(&run(&["--exact", "gpu::scorer", "--ignored"], &[device, &more].concat()));
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(report).unwrap();
    let counts = text.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    counts.map(|(what, count)| (what.to_owned(), count.parse().unwrap())).collect()
}

/// So the first pair takes no longer than others, as far as that is up to us.
#[test]
fn nothing_is_left_to_be_set_up_after_prepare() {
    let (none, some) = (counts(0, &[RDNA]), counts(6, &[RDNA]));
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
    session.end_run(false);
    assert_eq!(scored + session.collect().unwrap().len(), pairs);
}
