// SPDX-License-Identifier: MPL-2.0

//! Decides how the frames of two videos are paired, by their pictures, numbers and timestamps.

use serde::Serialize;

use super::align::{self, Guess, Sides};
use super::scan::{Shot, middle};

/// Method that pairs the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By number.
    Number,
    /// By time, with an offset.
    Time,
    /// By picture.
    Picture,
}

/// A pairing of two videos.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub method: Method,
    /// Median delay of the distorted frames in nanoseconds.
    pub offset: i64,
    /// Confidence from the pictures, 0 to 1. Still pictures give one half.
    pub confidence: f64,
    /// The distorted frame of each reference frame.
    pub pairs: Vec<Option<usize>>,
    /// The distorted video has a lower frame rate, so some reference frames are omitted on purpose.
    pub decimated: bool,
    /// Distorted frames without a partner: repetitions of the frame before, and others.
    pub repeated: Vec<usize>,
    pub extra: Vec<usize>,
}

impl Plan {
    /// Returns the reference frames without a partner.
    pub fn unpaired(&self) -> impl Iterator<Item = usize> {
        self.pairs.iter().enumerate().filter(|(_, partner)| partner.is_none()).map(|(i, _)| i)
    }
}

/// Largest shift that is searched, in frames, in addition to the difference in the number of frames.
const SHIFT: usize = 300;
/// Number of frames compared for the confidence.
const SAMPLES: usize = 64;
/// Smaller differences carry no information, in 8-bit steps.
const LEAST_DIFFERENCE: f32 = 1.0;

/// Decides the pairing. Returns an error for unrelated pictures. With `by_picture`, only pictures count.
pub fn decide(sides: &Sides, by_picture: bool) -> Result<Plan, Unlike> {
    if sides.reference.is_empty() || sides.distorted.is_empty() {
        return Err(Unlike);
    }
    let guess = match guess(sides) {
        Guess::Time(offset) if has_another_rate(sides) => align::taken(sides, offset),
        guess => guess,
    };
    let pairs = align::align(sides, guess);
    let confidence = confidence(sides, &pairs)?;
    let paired: Vec<_> = pairs.iter().enumerate().filter_map(|(i, partner)| Some((i, (*partner)?))).collect();
    let away = |(i, j): &(usize, usize)| sides.distorted[*j].time as i64 - sides.reference[*i].time as i64;
    let offsets: Vec<_> = paired.iter().map(away).collect();
    let offset = middle(offsets.clone()).unwrap_or(0);
    let half = sides.typical(true) / 2;
    let counted = sides.reference.len() == sides.distorted.len() && paired.len() == sides.reference.len();
    let method = if by_picture {
        Method::Picture
    } else if counted {
        Method::Number
    } else if offsets.iter().all(|away| away.abs_diff(offset) <= half) {
        Method::Time
    } else {
        Method::Picture
    };
    let mut without = vec![true; sides.distorted.len()];
    paired.iter().for_each(|(_, j)| without[*j] = false);
    let repeats = align::repeats(sides.distorted);
    // Of a frame and its repetition, either may have the partner.
    let is_repeated = |j: &usize| repeats[*j] || repeats.get(j + 1) == Some(&true);
    let without = (0..without.len()).filter(|j| without[*j]);
    let (repeated, extra): (Vec<_>, Vec<_>) = without.partition(is_repeated);
    if (paired.len() + repeated.len()) * 2 < sides.distorted.len().min(sides.reference.len()) {
        return Err(Unlike);
    }
    let decimated = is_decimated(sides, &pairs);
    Ok(Plan { method, offset, confidence, pairs, decimated, repeated, extra })
}

/// The pictures of two videos are unrelated.
#[derive(Debug, PartialEq, Eq)]
pub struct Unlike;

/// Returns true if the frame rates differ.
fn has_another_rate(sides: &Sides) -> bool {
    let [own, other] = [true, false].map(|of_reference| sides.typical(of_reference));
    own.max(other) * 100 > own.min(other) * 103
}

fn guess(sides: &Sides) -> Guess {
    let (reference, distorted) = (sides.reference, sides.distorted);
    let frame = sides.typical(true) as i64;
    let times = [sides.late(), 0].into_iter();
    let times = times.flat_map(|offset| [0, -1, 1, -2, 2].map(|frames| Guess::Time(offset + frames * frame)));
    let difference = reference.len().abs_diff(distorted.len());
    let most = (SHIFT + difference).min(reference.len().max(distorted.len())) as i64;
    let shifts = (1..most).flat_map(|shift| [Guess::Number(shift), Guess::Number(-shift)]);
    let number = [Guess::Number(0)];
    let wanted: Vec<_> = if difference == 0 {
        number.into_iter().chain(times).chain(shifts).collect()
    } else {
        times.into_iter().chain(number).chain(shifts).collect()
    };
    let best = align::guess(sides, &wanted);
    // Timestamps show which frames were lost.
    match best {
        Guess::Number(shift) if difference > 0 => {
            let first = usize::try_from(-shift).unwrap_or(0);
            let (Some(reference), Some(distorted)) = (
                reference.get(first),
                usize::try_from(first as i64 + shift).ok().and_then(|j| distorted.get(j)),
            ) else {
                return best;
            };
            let time = Guess::Time(distorted.time as i64 - reference.time as i64);
            if align::guess(sides, &[time, best]) == time { time } else { best }
        }
        best => best,
    }
}

/// Returns the confidence of the pairs: the share of frames that are more similar to their partner than to frames
/// elsewhere, times the share that no neighbour of the partner resembles more.
fn confidence(sides: &Sides, pairs: &[Option<usize>]) -> Result<f64, Unlike> {
    let paired: Vec<_> = pairs.iter().enumerate().filter_map(|(i, partner)| Some((i, (*partner)?))).collect();
    let count = SAMPLES.min(paired.len());
    let samples: Vec<_> = (0..count).map(|k| paired[k * paired.len() / count]).collect();
    let (mut decisive, mut won, mut best) = (0, 0, 0);
    let (mut own_sum, mut other_sum) = (0.0, 0.0);
    for (k, (i, j)) in samples.iter().copied().enumerate() {
        let own = sides.distance(i, j);
        for step in [3, 7, 13] {
            let (other, partner) = samples[(k + count * step / 16 + 1) % count];
            if sides.reference[i].picture.distance(&sides.reference[other].picture) > LEAST_DIFFERENCE {
                let strange = sides.distance(i, partner);
                decisive += 1;
                won += u32::from(own < strange);
                own_sum += own;
                other_sum += strange;
            }
        }
        let beside = j.saturating_sub(2)..(j + 3).min(sides.distorted.len());
        let least = beside.map(|j| sides.distance(i, j)).fold(f32::INFINITY, f32::min);
        best += u32::from(own <= least * 1.25 + 0.25);
    }
    if count == 0 {
        return Err(Unlike);
    }
    let fits = f64::from(best) / count as f64;
    if decisive == 0 {
        return Ok(fits / 2.0);
    }
    let share = f64::from(won) / f64::from(decisive);
    if decisive >= 12 && share < 0.75 && own_sum > other_sum * 0.6 {
        return Err(Unlike);
    }
    Ok(share * fits)
}

/// Returns true if both videos have constant rates, and the distorted one has the lower rate.
fn is_decimated(sides: &Sides, pairs: &[Option<usize>]) -> bool {
    let regular = |shots: &[Shot], typical: u64| {
        let distances = shots.windows(2).map(|pair| pair[1].time - pair[0].time);
        distances.filter(|distance| distance.abs_diff(typical) <= typical / 4).count() * 10
            >= shots.len().saturating_sub(1) * 9
    };
    let [own, other] = [true, false].map(|of_reference| sides.typical(of_reference));
    let inner = |mut i: usize| {
        while pairs.get(i) == Some(&None) {
            i += 1;
        }
        i
    };
    let first = inner(0);
    let last = pairs.iter().rposition(Option::is_some).unwrap_or(0);
    let lost = pairs.get(first..=last).unwrap_or_default().iter().filter(|partner| partner.is_none()).count();
    other * 10 > own * 11
        && regular(sides.reference, own)
        && regular(sides.distorted, other)
        && lost as u64 * other * 2 >= (last - first.min(last)) as u64 * (other - own)
}

#[cfg(test)]
mod tests {
    use super::super::scan::{CELLS, Small};
    use super::*;

    const FRAME: u64 = 40_000_000;

    fn shots(numbers: impl IntoIterator<Item = u64>, from: u64, frame: u64) -> Vec<Shot> {
        let of = |(number, place): (u64, u64)| {
            let mut picture = fastrand::Rng::with_seed(number);
            let cells = std::array::from_fn::<u16, CELLS, _>(|_| 20_000 + picture.u16(0..8000));
            Shot { time: from + place * frame, position: place * frame, picture: Small(cells) }
        };
        numbers.into_iter().zip(0..).map(of).collect()
    }

    fn plan(reference: &[Shot], distorted: &[Shot]) -> Result<Plan, Unlike> {
        decide(&Sides { reference, distorted }, false)
    }

    #[test]
    fn the_same_number_of_frames_is_paired_by_number() {
        let [film, late] = [0, 1_400_000_000].map(|from| shots(0..50, from, FRAME));
        let found = plan(&film, &late).unwrap();
        assert_eq!((found.method, found.offset), (Method::Number, 1_400_000_000));
        assert!(found.confidence > 0.99 && found.unpaired().count() == 0, "{found:?}");
        let faster = shots(0..50, 0, FRAME / 2);
        assert_eq!(plan(&film, &faster).unwrap().method, Method::Number);
    }

    #[test]
    fn a_cut_has_an_offset_and_a_lower_rate_leaves_frames_out() {
        let film = shots(0..80, 0, FRAME);
        let found = plan(&film, &shots(30..70, 0, FRAME)).unwrap();
        assert_eq!((found.method, found.offset, found.decimated), (Method::Time, -30 * FRAME as i64, false));
        assert_eq!(found.unpaired().count(), 40);
        let found = plan(&film, &shots((0..80).step_by(2), 0, FRAME * 2)).unwrap();
        assert_eq!((found.method, found.offset, found.decimated), (Method::Time, 0, true));
    }

    #[test]
    fn lost_frames_without_their_times_are_found_by_pictures() {
        let film = shots(0..80, 0, FRAME);
        let found = plan(&film, &shots((0..80).filter(|number| number % 25 != 8), 0, FRAME)).unwrap();
        assert_eq!(found.method, Method::Picture);
        assert_eq!(found.unpaired().collect::<Vec<_>>(), [8, 33, 58]);
        let found = plan(&film, &shots((0..80).map(|number| if number == 9 { 8 } else { number }), 0, FRAME))
            .unwrap();
        assert_eq!((found.unpaired().collect::<Vec<_>>(), found.repeated), (vec![9], vec![9]));
    }

    #[test]
    fn other_films_are_refused_and_still_pictures_are_not() {
        let film = shots(0..80, 0, FRAME);
        assert_eq!(plan(&film, &shots(1000..1080, 0, FRAME)), Err(Unlike));
        assert_eq!(plan(&film, &[]), Err(Unlike));
        let still = shots(std::iter::repeat_n(5, 80), 0, FRAME);
        let found = plan(&still, &still).unwrap();
        assert_eq!((found.method, found.confidence), (Method::Number, 0.5));
    }
}
