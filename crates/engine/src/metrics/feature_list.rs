// SPDX-License-Identifier: MPL-2.0

//! Lists of features in the users' syntax: libvmaf's names of extractors, each with options, as in
//! `psnr;adm=adm_csf_mode=2:adm_norm_view_dist=5`.

use super::extractor::Extractor;
use super::feature::names;
use super::options::OptionError;

/// An invalid item of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{item}`: {problem}")]
pub struct ListError {
    /// The item as it was written.
    pub item: String,
    /// The reason.
    #[source]
    pub problem: Problem,
}

/// Reasons why an item is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No extractor has this name.
    #[error("there is no feature `{0}`; there are {list}", list = names())]
    Unknown(String),
    /// An option without a value.
    #[error("`{0}` is not an option with its value, option=value")]
    NoValue(String),
    /// The extractor has no such option.
    #[error("{extractor} has no option `{option}`; it has {list}", list = .known.join(", "))]
    UnknownOption {
        /// Its name.
        extractor: &'static str,
        /// The option as it was written.
        option: String,
        /// The options that it has.
        known: Vec<&'static str>,
    },
    /// One item has the option twice.
    #[error("the option {0} is given twice")]
    OptionTwice(String),
    /// An option has an invalid value.
    #[error("the option {0}")]
    Value(#[from] OptionError),
    /// Its features would be reported twice.
    #[error("another item asks for the same features already")]
    Twice,
}

/// Parses `name[=option=value[:option=value]…]`, once or several times with semicolons between. Ignores spaces around
/// items and empty items. `defaults` apply to extractors that have these options.
pub fn parse(text: &str, defaults: &[(&str, &str)]) -> Result<Vec<Extractor>, ListError> {
    let mut extractors: Vec<Extractor> = vec![];
    for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
        let fail = |problem| ListError { item: item.to_string(), problem };
        let extractor = parse_item(item, defaults).map_err(fail)?;
        if extractors.iter().any(|other| other.is_same(&extractor)) {
            return Err(fail(Problem::Twice));
        }
        extractors.push(extractor);
    }
    Ok(extractors)
}

fn parse_item(item: &str, defaults: &[(&str, &str)]) -> Result<Extractor, Problem> {
    let (name, options) = item.split_once('=').map_or((item, None), |(name, rest)| (name, Some(rest)));
    let Some(mut extractor) = Extractor::named(name) else {
        return Err(Problem::Unknown(name.to_string()));
    };
    for (option, value) in defaults {
        extractor.set(option, value)?;
    }
    let mut seen = vec![];
    for text in options.into_iter().flat_map(|options| options.split(':')) {
        let (option, value) = text.split_once('=').ok_or_else(|| Problem::NoValue(text.to_string()))?;
        if seen.contains(&option) {
            return Err(Problem::OptionTwice(option.to_string()));
        }
        if !extractor.set(option, value)? {
            let (extractor, known) = (extractor.name(), extractor.options());
            return Err(Problem::UnknownOption { extractor, option: option.to_string(), known });
        }
        seen.push(option);
    }
    Ok(extractor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::adm::{AdmOptions, CsfMode};
    use crate::metrics::psnr::PsnrOptions;

    fn keys(text: &str) -> Vec<String> {
        let key = |e: &Extractor| format!("{}{}", e.name(), e.suffix());
        parse(text, &[]).unwrap().iter().map(key).collect()
    }

    #[test]
    fn names_and_options_are_those_of_libvmaf() {
        assert_eq!(keys(""), [""; 0]);
        assert_eq!(keys(" psnr ; ;vif;"), ["psnr", "vif"]);
        assert_eq!(
            keys("adm=adm_norm_view_dist=5:adm_csf_mode=2;adm;motion=motion_moving_average=true"),
            ["adm_csf_2_nvd_5", "adm", "motion_mma"]
        );
        assert_eq!(
            parse("adm=adm_csf_mode=2:adm_skip_aim=true;psnr=reduced_hbd_peak=true", &[]),
            Ok(vec![
                Extractor::with(AdmOptions {
                    csf_mode: CsfMode::Blend,
                    skip_aim: true,
                    ..Default::default()
                }),
                Extractor::with(PsnrOptions { reduced_hbd_peak: true, ..Default::default() }),
            ])
        );
    }

    #[test]
    fn defaults_are_for_those_that_have_the_option() {
        let defaults = [("enc_width", "640"), ("topk", "0.5")];
        let [cambi, vif] = &parse("cambi=topk=0.25;vif", &defaults).unwrap()[..] else { panic!() };
        assert_eq!((cambi.suffix().as_str(), vif.suffix().as_str()), ("_encw_640_topk_0.25", ""));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_allowed() {
        let all = names();
        assert!(all.contains("adm, ") && all.contains("motion, ") && all.contains("vif"));
        for (list, message) in [
            ("psnr;vmaf", format!("`vmaf`: there is no feature `vmaf`; there are {all}")),
            ("=1", format!("`=1`: there is no feature ``; there are {all}")),
            ("PSNR", format!("`PSNR`: there is no feature `PSNR`; there are {all}")),
            ("vif=", "`vif=`: `` is not an option with its value, option=value".into()),
            (
                "vif=vif_skip_scale0=true:",
                "`vif=vif_skip_scale0=true:`: `` is not an option with its value, option=value".into(),
            ),
            (
                "vif=vif_skip_scale0",
                "`vif=vif_skip_scale0`: `vif_skip_scale0` is not an option with its value, option=value".into(),
            ),
            (
                "vif=egl=1",
                "`vif=egl=1`: vif has no option `egl`; it has vif_enhn_gain_limit, vif_skip_scale0".into(),
            ),
            (
                "psnr;vif=vif_enhn_gain_limit=1:vif_skip_scale0=true:vif_enhn_gain_limit=1",
                "`vif=vif_enhn_gain_limit=1:vif_skip_scale0=true:vif_enhn_gain_limit=1`: the option \
                 vif_enhn_gain_limit is given twice"
                    .into(),
            ),
            (
                "motion=motion_max_val=1=2",
                "`motion=motion_max_val=1=2`: the option motion_max_val is `1=2`, but must be a number from 0 \
                 to 10000"
                    .into(),
            ),
            (
                "motion;vif;motion=motion_fps_weight=1",
                "`motion=motion_fps_weight=1`: another item asks for the same features already".into(),
            ),
        ] {
            assert_eq!(parse(list, &[]).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn every_extractor_can_be_asked_for() {
        for extractor in Extractor::all() {
            assert_eq!(parse(extractor.name(), &[]), Ok(vec![extractor.clone()]));
            assert_eq!(extractor.features(true).is_empty(), extractor.name() == "null");
        }
    }

    /// Generates pieces of lists and invalid text.
    fn piece() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let known = Extractor::all().flat_map(|e| e.options().into_iter().chain([e.name()]));
        let known: Vec<_> = known.chain(["=", ":", ";", "0", "1", "2.5", "true", "-1", "é"]).collect();
        prop_oneof![4 => proptest::sample::select(known).prop_map(String::from), 1 => ".{0,3}"]
    }

    proptest::proptest! {
        /// Any text gives a list or an error, and a list can be parsed again from its features.
        #[test]
        fn any_text_is_a_list_or_an_error(pieces in proptest::collection::vec(piece(), 0..12)) {
            let text = pieces.concat();
            match parse(&text, &[]) {
                Ok(extractors) => proptest::prop_assert!(extractors.len() <= text.split(';').count()),
                Err(error) => proptest::prop_assert!(text.contains(&error.item)),
            }
        }
    }
}
