// SPDX-License-Identifier: MPL-2.0

//! ADM in floating point through sessions: libvmaf's values.

use std::sync::Arc;

use hipvmaf_engine::EngineError;
use hipvmaf_engine::backend::BackendError;
use hipvmaf_engine::frame::{BitDepth, Geometry, Picture};
use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::ScoreOptions;
use hipvmaf_engine::plan::Plan;
use hipvmaf_engine::session::{Session, Tag};

use crate::features::backend;

/// Sets of options. The last one has an exponent that only the CPU computes.
const OPTIONS: [&str; 3] = [
    "float_adm",
    "float_adm=adm_enhn_gain_limit=1:adm_csf_mode=2:adm_noise_weight=0.02:adm_min_val=0.5",
    "float_adm=adm_p_norm=2",
];

/// `adm2`, `aim`, `adm3` and `adm_scale0` to `3` of libvmaf 3.2.0, for each set of options. They depend on the processor
/// that computes them, in the last digits.
type Golden = ((usize, usize, u32), [[f64; 7]; OPTIONS.len()]);

#[rustfmt::skip]
const GOLDEN: [Golden; 4] = [
    ((97, 71, 8), [
        [0.9868136937012121, 0.00764020879476167, 0.9895867424532252, 0.956816268239427, 0.9815283476770876, 0.9971936998332832, 0.9956435743841975],
        [0.9906326016016728, 0.0012041807409449276, 0.9947142104303639, 0.9721825809341448, 0.9744148922178528, 0.9930089648993875, 0.992020322215779],
        [0.9793765649412332, 0.007249097236853664, 0.9860637338521898, 0.9438931650432985, 0.976345494130427, 0.9955794589262402, 0.9937586258988343],
    ]),
    ((176, 144, 10), [
        [0.9897405213390104, 0.01029076230991527, 0.9897248795145475, 0.9546064384479714, 0.9765995304168452, 0.9967385271573197, 0.9980911032662475],
        [0.993112755236531, 0.0012627745220507656, 0.99592499035724, 0.9727048199461342, 0.9702501484583459, 0.9920540304232565, 0.9957167052940945],
        [0.9850386242862887, 0.013519694139317986, 0.9857594650734853, 0.9435538860588768, 0.9701198725155606, 0.996508406697384, 0.9976410672137295],
    ]),
    ((48, 33, 12), [
        [0.97021265433141, 0.18287714729700782, 0.8936677535172011, 1.000317676304696, 0.9250779676356873, 0.9632805223991237, 0.9780974347351024],
        [0.9441674137948827, 0.10838399286484655, 0.917891710465018, 0.9996525340702118, 0.7117234555261358, 0.8972487925698799, 0.9650039282102585],
        [0.9611991297145794, 0.29782382551215697, 0.8316876521012112, 0.9992125004607499, 0.9065688274637029, 0.9439358098032194, 0.9692273000410072],
    ]),
    ((61, 53, 16), [
        [0.987776849808407, 0.2951950555587204, 0.8462908971248433, 0.9999342325183291, 0.9961104622490802, 0.9681966563734729, 0.9645988794351381],
        [0.865502622402466, 0.9926000068153125, 0.5, 0.9999786551670865, 0.9769613241876157, 0.6896909959341571, 0.8387277794040335],
        [0.9858590938217705, 0.4820182656125216, 0.7519204141046245, 0.9998937889479608, 0.9953425779455615, 0.9562542497323675, 0.9407606095923174],
    ]),
];

/// Differences between processors are smaller.
const TOLERANCE: f64 = 1e-6;

fn session(options: &str, geometry: Geometry) -> Result<Session, EngineError> {
    let extractors = feature_list::parse(options, &[]).unwrap();
    let features: Vec<_> = extractors.iter().flat_map(|extractor| extractor.features(true)).collect();
    let plan = Plan::new(vec![], &features, ScoreOptions::default()).unwrap();
    let mut session = Session::new(Arc::new(plan), backend(), 1);
    session.prepare(geometry, &[None]).map(|()| session)
}

/// Returns the reference and the distorted picture.
fn pictures(geometry: Geometry) -> [Vec<u8>; 2] {
    let max = geometry.depth.max() as usize;
    let bytes = |distorted: bool| {
        let mut bytes = vec![];
        for (y, x) in (0..geometry.height).flat_map(|y| (0..geometry.width).map(move |x| (y, x))) {
            let reference = (3 * x * x + 5 * y + 7 * x * y) / 16 % (max + 1);
            let noise = ((31 * x + 17 * y) % 23) << (geometry.depth.bits() - 8);
            let sample = if distorted { (reference + noise).min(max) } else { reference };
            bytes.extend(&sample.to_le_bytes()[..geometry.sample_size()]);
        }
        bytes
    };
    [bytes(false), bytes(true)]
}

pub fn is_that_of_libvmaf() {
    for ((width, height, bits), golden) in GOLDEN {
        let geometry = Geometry { width, height, depth: BitDepth::new(bits).unwrap(), chroma: None };
        let frames = pictures(geometry);
        let [reference, distorted] = frames.each_ref().map(|bytes| Picture::packed(bytes, geometry).unwrap());
        for (options, golden) in OPTIONS.iter().zip(golden) {
            let of = format!("{width}x{height} {bits} bit, {options}");
            let mut session = match session(options, geometry) {
                Ok(session) => session,
                Err(EngineError::Backend(error @ BackendError::CpuOnly(_))) => {
                    assert!(options.contains("p_norm"), "{of}: {error}");
                    assert!(error.is_device() && error.to_string().contains("adm_p_norm"), "{error}");
                    continue;
                }
                Err(error) => panic!("{of}: {error}"),
            };
            session.submit(Tag::default(), reference.clone(), vec![(0, distorted.clone())]).unwrap();
            let mut pairs = vec![];
            while session.in_flight() > 0 {
                pairs.extend(session.collect().unwrap());
            }
            let values = pairs.remove(0).values.unwrap();
            assert_eq!(values.len(), golden.len(), "{of}");
            for (i, (value, golden)) in values.iter().zip(golden).enumerate() {
                assert!((value - golden).abs() < TOLERANCE, "{of}: value {i} is {value}, not {golden}");
            }
        }
    }
}
