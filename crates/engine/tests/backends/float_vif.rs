// SPDX-License-Identifier: MPL-2.0

//! Float VIF through sessions: the values are those of libvmaf 3.2.0 in plain C to the last bit.

use std::sync::Arc;

use hipvmaf_engine::EngineError;
use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::session::{Session, Tag};

use crate::features::backend;

/// Size, bits, options, and the values of two frames.
type Case = ((usize, usize), u32, &'static str, [[f64; 4]; 2]);

const CASES: &[Case] = &[
    (
        (97, 64),
        8,
        "",
        [
            [0.5951152840181152, 0.9873092211275711, 0.9883984569961755, 0.9908482779958682],
            [0.5985589399261064, 0.9862300313282526, 0.9863686472133153, 0.9872101911268456],
        ],
    ),
    (
        (160, 91),
        10,
        "",
        [
            [0.5681186367622979, 0.989304979392729, 0.9945893549088691, 0.9964130567998722],
            [0.572663414664197, 0.9890439899624123, 0.9943967873266756, 0.9964829327638548],
        ],
    ),
    (
        (33, 50),
        12,
        "",
        [
            [0.16548397426374528, 0.9970671646067016, 0.9992972710963762, 0.9981520770294033],
            [0.15983783325333525, 0.9954777737084258, 0.9988166317835069, 0.9985342355797847],
        ],
    ),
    (
        (48, 31),
        16,
        "",
        [
            [0.9972901703209005, 0.9999949985080295, 0.9999958219982329, 0.9999957614474826],
            [0.9972902523574009, 0.999993896484375, 0.9999947320847284, 0.9999948077731662],
        ],
    ),
    (
        (97, 64),
        8,
        "=vif_enhn_gain_limit=1",
        [
            [0.5950533867106141, 0.9872265088057666, 0.9882463410571869, 0.9903064933888457],
            [0.5985209076265459, 0.9861730764165068, 0.9862484789040159, 0.986934176959655],
        ],
    ),
    (
        (61, 45),
        10,
        "=vif_sigma_nsq=0.3:vif_skip_scale0=true",
        [
            [0.0, 0.9633363074158007, 0.9795003420930956, 0.9909943759023909],
            [0.0, 0.9569786948133767, 0.9742529017851775, 0.9867254353162496],
        ],
    ),
    (
        (40, 40),
        8,
        "=vif_sigma_nsq=0",
        [
            [0.046489715576171875, 0.1105368423461914, 0.12361773490905761, 0.12712600708007812],
            [0.04917543888092041, 0.10777400970458985, 0.11256906509399414, 0.1266699981689453],
        ],
    ),
    (
        (97, 64),
        8,
        "=vif_scale1_min_val=0.987:vif_scale2_min_val=0.987:vif_scale3_min_val=0.99",
        [
            [0.5951152840181152, 0.9873092211275711, 0.9883984569961755, 0.9908482779958682],
            [0.5985589399261064, 0.987, 0.987, 0.99],
        ],
    ),
];

/// Options without kernels.
const RARE: &[Case] = &[
    (
        (97, 64),
        8,
        "=vif_kernelscale=1.5",
        [
            [0.5990811331134036, 0.9855760207724628, 0.9902816493182953, 0.9949964855241314],
            [0.6010479538738415, 0.9835016341754862, 0.9922956127786546, 0.9968482438696076],
        ],
    ),
    (
        (97, 64),
        8,
        "=vif_prescale=0.6",
        [
            [0.5998943174397569, 0.9462247045334825, 0.9624802447565878, 0.9844017217780432],
            [0.6017384105441275, 0.9394279305065988, 0.9531136428100031, 0.9818324391423302],
        ],
    ),
    (
        (97, 64),
        10,
        "=vif_prescale=0.7:vif_prescale_method=bilinear",
        [
            [0.6894275772983659, 0.9911429095551978, 0.9954518131108661, 0.9967320896486083],
            [0.6952044286148645, 0.9897905553953399, 0.9947899487636058, 0.9969802818860872],
        ],
    ),
    (
        (40, 33),
        8,
        "=vif_prescale=1.5:vif_prescale_method=bicubic",
        [
            [0.587262562667824, 0.9703572932324604, 0.9942386574372774, 0.99799956291771],
            [0.6049654515402885, 0.9705461296152619, 0.993710230726699, 0.9965682519089732],
        ],
    ),
    (
        (40, 33),
        12,
        "=vif_prescale=2:vif_prescale_method=lanczos4",
        [
            [0.31887344054631434, 0.8222226021239116, 0.9687552244270364, 0.9983302007115527],
            [0.2400397013361, 0.8132120171996152, 0.9657609483574628, 0.9940417996046735],
        ],
    ),
];

fn geometry((width, height): (usize, usize), bits: u32) -> Geometry {
    Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma: None }
}

fn session(options: &str, geometry: Geometry) -> Result<Session, EngineError> {
    let extractors = feature_list::parse(&format!("float_vif{options}"), &[]).unwrap();
    let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(false)).collect();
    let plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    let mut session = Session::new(Arc::new(plan), backend(), 1);
    session.prepare(geometry, &[None]).map(|()| session)
}

/// Returns the samples of frame `t` of both pictures.
fn bytes(geometry: Geometry, t: usize) -> [Vec<u8>; 2] {
    let max = geometry.depth.max();
    let samples = (0..geometry.width * geometry.height).map(|i| {
        let (x, y) = (i % geometry.width + 5 * t, i / geometry.width);
        let reference = ((3 * x * x + 5 * y + 7 * x * y) / 16) as u32 & max;
        let step = ((31 * x + 17 * y) % 23) as u32;
        [reference, (reference + (step << (geometry.depth.bits() - 8))).min(max)]
    });
    let samples: Vec<_> = samples.collect();
    [0, 1].map(|i| {
        samples
            .iter()
            .flat_map(|pair| pair[i].to_le_bytes().into_iter().take(geometry.sample_size()))
            .collect()
    })
}

fn check((size, bits, options, expected): &Case) {
    let geometry = geometry(*size, *bits);
    let mut session = session(options, geometry).unwrap();
    for (t, expected) in expected.iter().enumerate() {
        let bytes = bytes(geometry, t);
        let [reference, distorted] = bytes.each_ref().map(|bytes| Picture::packed(bytes, geometry).unwrap());
        session.submit(Tag::default(), reference, vec![(0, distorted)]).unwrap();
        let mut found = vec![];
        while session.in_flight() > 0 {
            found.extend(session.collect().unwrap());
        }
        assert_eq!(found[0].values.as_deref(), Some(&expected[..]), "{size:?} {bits} {options} {t}");
    }
}

pub fn is_that_of_libvmaf() {
    CASES.iter().for_each(check);
}

/// The GPU backend refuses them such that another backend can take over.
pub fn with_rare_options_is_that_of_libvmaf() {
    for case in RARE {
        let (size, bits, options, _) = case;
        if backend().name() == "cpu" {
            check(case);
            continue;
        }
        let Err(EngineError::Backend(error)) = session(options, geometry(*size, *bits)) else {
            panic!("{options}")
        };
        assert!(error.is_device());
        let text = "float_vif with vif_kernelscale or vif_prescale is computed on the CPU only";
        assert_eq!(error.to_string(), text);
    }
}

pub fn of_frames_below_the_filters_is_refused() {
    for (options, size, least) in
        [("", (15, 40), "16x16"), ("", (40, 15), "16x16"), ("=vif_kernelscale=3", (39, 90), "40x40")]
    {
        let Err(EngineError::Backend(error)) = session(options, geometry(size, 8)) else {
            panic!("{size:?}")
        };
        let text =
            format!("the float VIF metric needs frames of at least {least}, these are {}x{}", size.0, size.1);
        assert_eq!(error.to_string(), text);
    }
}
