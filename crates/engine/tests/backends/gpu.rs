// SPDX-License-Identifier: MPL-2.0

//! The GPU backend on the software device of `tests/swhip`, which runs the shipped kernels on the CPU and behaves like
//! AMD's runtime.

use std::collections::BTreeMap;

use hipvmaf_engine::backend::Backend;
use hipvmaf_engine::backend::hip::{self, Hip, SelfTest};
use hipvmaf_engine::frame::{BitDepth, Geometry};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::{Model, ScoreOptions, builtin};
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::scale::{Method, Scaling};

use crate::process::{Case, Function, functions, passes};
use crate::swhip::library;

/// Functions that the tests start.
pub const FUNCTIONS: &[Function] = functions![plans, opener, forker, scorer];

/// Tests that start them on several devices.
pub const TESTS: &[Function] = functions![
    the_best_device_is_opened,
    a_device_that_does_not_answer_or_takes_no_code_does_not_hide_the_others,
    sums_hold_without_graphs,
    copies_are_made_in_batches_on_nvidia,
    nothing_is_left_to_be_set_up_after_prepare,
];

/// Returns further functions with the devices on which they must succeed.
pub fn cases() -> Vec<Case> {
    // No plan may make a self-test fail on a GPU that computes correctly.
    let tested =
        |arch| vec![arch, ("HIPVMAF_SELF_TEST", "always"), ("XDG_CACHE_HOME", "/proc/nowhere"), ("HOME", "")];
    // The host waits for events; by HIP's documentation they make memory visible only on request.
    let strict =
        |graphs| vec![RDNA, ("SWHIP_COHERENCE", "strict"), ("SWHIP_SEED", "2"), ("HIPVMAF_GRAPHS", graphs)];
    let driver: &'static str = String::leak(library("libcuda.so.1").to_str().unwrap().to_owned());
    let nvidia = vec![
        ("HIPVMAF_CUDA_LIBRARY", driver),
        ("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6"),
        ("SWHIP_SEED", "3"),
    ];
    vec![
        ("tested_rdna", "gpu::plans", tested(RDNA)),
        ("tested_cdna", "gpu::plans", tested(CDNA)),
        ("incoherent", "sums::of_groups_equal_the_processors", strict("on")),
        ("incoherent_without_graphs", "sums::of_speed_chroma_equal_the_processors", strict("off")),
        // The same kernels in the shapes for NVIDIA's GPUs, behind the driver's contexts.
        ("nvidia", "sums::of_every_metric_equal_the_processors", nvidia),
        // A forked process gets an error that asks it to open the GPU itself.
        ("rdna", "gpu::forker", vec![RDNA]),
    ]
}

pub const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
pub const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");

fn plans() {
    let models = builtin::names().map(|name| Model::load(name).unwrap()).collect();
    let classic =
        feature_list::parse("psnr;xpsnr;float_ssim;float_ms_ssim;psnr_hvs;ciede;cambi", &[]).unwrap();
    let classic: Vec<_> = classic.iter().flat_map(|extractor| extractor.features(true)).collect();
    let mut all = Plan::new(models, &classic, ScoreOptions::default()).unwrap();
    all.add_heat_map();
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

/// Returns the number of the device that a process opens, or the error.
fn opened(environment: &[(&str, &str)]) -> String {
    let text = passes("gpu::opener", environment);
    text.lines().find_map(|line| line.split_once("opener: ")).unwrap().1.to_owned()
}

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

/// On a desktop, the graphics of the processor come first.
fn the_best_device_is_opened() {
    assert_eq!(opened(&[THREE]), "0");
    for (units, best) in [("2i,96,104", "2"), ("2i,96,96", "1"), ("200i,96,60", "1"), ("2i,96i,60i", "1")] {
        assert_eq!(opened(&[THREE, ("SWHIP_UNITS", units)]), best, "{units}");
        assert_eq!(opened(&[THREE, ("SWHIP_UNITS", units), ("HIPVMAF_TEST_ORDINAL", "0")]), "0");
    }
}

fn a_device_that_does_not_answer_or_takes_no_code_does_not_hide_the_others() {
    let units = ("SWHIP_UNITS", "104,96,60");
    let faults = [
        "hipDeviceGetName:1@1",
        "hipDeviceGetPCIBusId:1@1",
        // Both forms of the code for the first device.
        "hipModuleLoadData:303@1,hipModuleLoadData:209@2",
        // Another error than an unsuitable code.
        "hipModuleLoadData:1@1",
    ];
    for fault in faults {
        assert_eq!(opened(&[THREE, units, ("SWHIP_FAIL", fault)]), "1", "{fault}");
    }
    // An error names the selected device.
    let wanted = [THREE, ("HIPVMAF_TEST_ORDINAL", "0"), ("SWHIP_FAIL", "hipModuleLoadData:303@1+")];
    assert!(opened(&wanted).contains("gfx1036"), "{}", opened(&wanted));
    let none = opened(&[("SWHIP_DEVICES", "0")]);
    assert!(none.contains("libamdhip64") && none.contains("libcuda"), "{none}");
    let none = opened(&[("SWHIP_DEVICES", "0"), ("HIPVMAF_TEST_AMD", "1")]);
    assert!(none.contains("libamdhip64") && !none.contains("libcuda"), "the other vendor was asked: {none}");
    let none = opened(&[THREE, ("SWHIP_FAIL", "hipDeviceGetName:1@1+")]);
    assert!(none.contains("device 0 of") && none.contains("device 2 of"), "{none}");
}

/// Kernels are launched one by one if the runtime makes no graphs, or the user has turned them off.
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
        passes(test, &environment);
        let counts = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(report).unwrap();
        assert!(counts.contains("count graph_launches 0"), "{value}: {counts}");
    }
}

/// The planes of a group are copied in one batch.
fn copies_are_made_in_batches_on_nvidia() {
    let driver = library("libcuda.so.1");
    let environment = [
        ("HIPVMAF_CUDA_LIBRARY", driver.to_str().unwrap()),
        ("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6"),
    ];
    assert!(counts(3, &environment).get("cuMemcpyBatchAsync").is_some_and(|batches| *batches > 0));
}

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
            // The parent's device is not closed twice.
            drop(parents);
            // SAFETY: ends the process without running code of the parent.
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

/// Counts the calls of the software device in a process that scores this many pairs.
fn counts(pairs: usize, device: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let report = std::env::temp_dir().join(format!("hipvmaf-{}-{pairs}.counts", std::process::id()));
    let pairs = pairs.to_string();
    let more = [("SWHIP_REPORT", report.to_str().unwrap()), ("HIPVMAF_TEST_PAIRS", &pairs)];
    passes("gpu::scorer", &[device, &more].concat());
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(report).unwrap();
    let counts = text.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    counts.map(|(what, count)| (what.to_owned(), count.parse().unwrap())).collect()
}

/// The first pair takes no longer than later ones, as far as the engine decides it.
fn nothing_is_left_to_be_set_up_after_prepare() {
    let (none, some) = (counts(0, &[RDNA]), counts(6, &[RDNA]));
    let more: Vec<_> = some.iter().filter(|(what, count)| none.get(*what) != Some(count)).collect();
    let sets_up = ["Malloc", "Create", "Instantiate", "Load", "GetFunction", "Free", "Destroy"];
    let set_up: Vec<_> =
        more.iter().filter(|(what, _)| sets_up.iter().any(|name| what.contains(name))).collect();
    assert!(set_up.is_empty(), "{set_up:?}");
    assert!(!more.is_empty(), "no pair was scored: {some:?}");
}

fn scorer() {
    use std::sync::Arc;

    use gpu::Selection;
    use hipvmaf_engine::backend::hip::Hip;
    use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
    use hipvmaf_engine::model::{Model, ScoreOptions};
    use hipvmaf_engine::plan::Plan;
    use hipvmaf_engine::session::{Session, Tag};

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
        session.submit(Tag::default(), picture(0), vec![(0, picture(i))]).unwrap();
        if let Some(completion) = session.completion() {
            completion();
        }
        scored += session.collect().unwrap().len();
    }
    session.end_run(false);
    assert_eq!(scored + session.collect().unwrap().len(), pairs);
}
