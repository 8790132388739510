// SPDX-License-Identifier: MPL-2.0

//! Finds the frames of two videos that show the same, in order.
//!
//! A dynamic program searches a band around the pairs given by timestamps or numbers. A pair costs the difference of
//! its pictures beyond the coding noise. A frame without a partner costs something, too, and least if it repeats the
//! frame before. Costs within the noise are equal, and timestamps or numbers decide between equal costs, so still
//! scenes shift nothing.
//!
//! Slow movement may be smaller than the noise of each frame. But the noise hardly changes from frame to frame, so
//! the [`Steps`] are used there: how far the distorted video moves along the direction of the original, which is zero
//! for a repeated frame, and double for a missing frame.

use super::scan::{Shot, Small, middle};

/// An assumption about pairs, before pictures are compared in detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// The distorted frame with the reference frame's number plus this.
    Number(i64),
    /// The distorted frame that is later by this many nanoseconds.
    Time(i64),
    /// The first distorted frame that is later by more than this many nanoseconds, and before the next reference
    /// frame's time: rate converters show the last frame before some moment.
    Shown(i64),
}

/// Distances are stored in this fraction of an 8-bit step.
const STEP: f32 = 128.0;
/// Costs are counted in this fraction of a unit, so that costs within the noise are equal.
const UNIT: f32 = 64.0;
/// Costs of a reference frame without a partner, and of a distorted frame that shows nothing of the reference, that
/// shows the same as another, or that repeats the frame before. The first two together cost more than the worst pair,
/// so a damaged frame is scored as one. A lost frame with a repetition in its place costs less.
const LOST: u32 = 64;
const SPOILT: u32 = 144;
const COPY: u32 = 40;
const REPEAT: u32 = 16;
/// A distorted frame whose best partner costs no more than this shows a frame of the reference.
const SHOWN: u32 = 32;
/// Highest cost of a pair, in units.
const WORST: f32 = 3.0;
/// Share of the noise by which a pair may differ more without cost.
const FREE: f32 = 0.1;
/// Smallest noise assumed, in 8-bit steps.
const LEAST_NOISE: f32 = 0.3;
/// Number of neighbouring frames whose noise counts.
const AROUND: usize = 24;
/// Largest distance of pairs from the guess, in addition to the difference in the number of frames.
const REACH: usize = 48;
/// Largest difference of repeated frames, in 8-bit steps.
const SAME: f32 = 0.25;
/// The same limit if movement shows that a frame is missing or repeated.
const SLOW: f32 = 0.98;
/// Another sampling moment than the usual one must leave no more than this share of the differences.
const CLEARLY: f32 = 0.97;
/// Cost of a zero or double step where movement is readable: two of these cost more than a lost frame with its
/// repetition.
const MISSTEP: f32 = 72.0;
/// Steps are readable if they are this many times as long as their usual error.
const READABLE: f32 = 5.0;
/// Smaller changes carry no information, in 8-bit steps.
const LEAST_CHANGE: f32 = 0.02;
/// Pictures that differ by this many times the usual difference show different frames.
const FOREIGN: f32 = 4.0;
/// Departing from the guess must leave no more than this share of the differences.
const DECISIVE: f32 = 0.6;
/// The same share if the numbers of frames differ, so that some frames have to depart from it.
const LIKELY: f32 = 0.85;

/// Two videos.
#[derive(Clone, Copy)]
pub struct Sides<'a> {
    pub reference: &'a [Shot],
    pub distorted: &'a [Shot],
}

impl Sides<'_> {
    pub fn distance(&self, i: usize, j: usize) -> f32 {
        self.reference[i].picture.distance(&self.distorted[j].picture)
    }

    /// Returns the number of the distorted frame that a guess assigns to a reference frame; it may be out of range.
    fn guessed(&self, guess: Guess, i: usize) -> i64 {
        match guess {
            Guess::Number(shift) => i as i64 + shift,
            Guess::Shown(offset) => {
                let from = self.reference[i].time as i64 + offset;
                self.distorted.partition_point(|shot| shot.time as i64 <= from) as i64
            }
            Guess::Time(offset) => {
                let at = self.reference[i].time as i64 + offset;
                let next = self.distorted.partition_point(|shot| (shot.time as i64) < at);
                let distance = |j: usize| self.distorted.get(j).map(|shot| (shot.time as i64).abs_diff(at));
                let before = next.checked_sub(1);
                match (before, before.and_then(distance), distance(next)) {
                    (Some(before), Some(early), Some(late)) if early < late => before as i64,
                    (Some(_), Some(early), None) if early > self.typical(false) => next as i64,
                    (Some(before), Some(_), None) => before as i64,
                    (None, _, Some(late)) if late > self.typical(false) => -1,
                    _ => next as i64,
                }
            }
        }
    }

    /// Returns the same if the frame exists and is not closer to another reference frame.
    pub fn guessed_pair(&self, guess: Guess, i: usize) -> Option<usize> {
        let j = usize::try_from(self.guessed(guess, i)).ok().filter(|j| *j < self.distorted.len())?;
        let offset = match guess {
            Guess::Number(_) => return Some(j),
            Guess::Shown(offset) => return (self.shown(offset, j) == Some(i)).then_some(j),
            Guess::Time(offset) => offset,
        };
        let away = |i: usize| {
            Some((self.reference.get(i)?.time as i64 + offset).abs_diff(self.distorted[j].time as i64))
        };
        let own = away(i)?;
        let nearer = |other: Option<usize>| other.and_then(away).is_some_and(|other| other < own);
        let shared_before = i.checked_sub(1).and_then(away) == Some(own);
        (!nearer(i.checked_sub(1)) && !nearer(Some(i + 1)) && !shared_before).then_some(j)
    }

    /// Returns the reference frame of a distorted frame for converters that show the last frame before its time minus
    /// an offset.
    fn shown(&self, offset: i64, j: usize) -> Option<usize> {
        let until = self.distorted[j].time as i64 - offset;
        self.reference.partition_point(|shot| (shot.time as i64) < until).checked_sub(1)
    }

    /// Returns the delay of the first distorted frame in nanoseconds.
    pub fn late(&self) -> i64 {
        let first = |shots: &[Shot]| shots.first().map_or(0, |shot| shot.time as i64);
        first(self.distorted) - first(self.reference)
    }

    /// Returns the median distance of frames.
    pub fn typical(&self, of_reference: bool) -> u64 {
        let shots = if of_reference { self.reference } else { self.distorted };
        middle(shots.windows(2).map(|pair| pair[1].time - pair[0].time).collect()).unwrap_or(40_000_000)
    }
}

/// Chooses the guess with the smallest differences in frames from the entire videos; of equal ones, the first.
pub fn guess(sides: &Sides, wanted: &[Guess]) -> Guess {
    const SAMPLES: usize = 64;
    let count = sides.reference.len();
    let samples: Vec<_> = (0..SAMPLES.min(count)).map(|k| k * count / SAMPLES.min(count)).collect();
    let strange = stranger(sides, &samples);
    let cost = |guess: Guess| {
        let of_sample = |i: &usize| match usize::try_from(sides.guessed(guess, *i)) {
            Ok(j) if j < sides.distorted.len() => sides.distance(*i, j).min(strange * 2.0),
            // A missing frame counts almost like an unrelated one.
            _ => strange * 0.75,
        };
        samples.iter().map(of_sample).sum::<f32>()
    };
    // With different numbers of frames, being better most of the time is sufficient.
    let often = |guess: Guess, best: Guess| {
        let both = samples.iter().filter_map(|i| {
            let partner =
                |guess| usize::try_from(sides.guessed(guess, *i)).ok().filter(|j| *j < sides.distorted.len());
            let (own, other) = (partner(guess)?, partner(best)?);
            (own != other).then(|| sides.distance(*i, own) < sides.distance(*i, other))
        });
        let (won, all) = both.fold((0, 0), |(won, all), wins| (won + usize::from(wins), all + 1));
        sides.reference.len() != sides.distorted.len() && all >= 8 && won * 10 >= all * 7
    };
    let mut best = (Guess::Number(0), f32::INFINITY);
    for guess in wanted {
        let cost = cost(*guess);
        // Small differences are coding noise.
        if cost < best.1 * 0.9 - 0.01 || cost < best.1 && often(*guess, best.0) {
            best = (*guess, cost);
        }
    }
    best.0
}

/// Finds the sampling moment of a rate conversion, near a time offset, by the smallest differences.
pub fn taken(sides: &Sides, offset: i64) -> Guess {
    const SAMPLES: usize = 512;
    let [own, other] = [true, false].map(|of_reference| sides.typical(of_reference) as i64);
    let step = (own.min(other) / 8).max(1);
    let count = sides.distorted.len();
    let samples: Vec<_> = (0..SAMPLES.min(count)).map(|k| k * count / SAMPLES.min(count)).collect();
    let cost = |offset: i64| {
        let distance = |j: &usize| sides.shown(offset, *j).map_or(64.0, |i| sides.distance(i, *j));
        samples.iter().map(distance).sum::<f32>()
    };
    // Most converters round to the nearest frame of the new rate, some to the nearest of the old one.
    let offsets = [0, sides.late(), offset];
    let usual = offsets.into_iter().flat_map(|offset| [offset - other / 2, offset - own / 2]);
    let most = (other.max(own) / step).min(128);
    let others = (-most..=most).map(|k| offset + k * step);
    let less = |a: (i64, f32), b: (i64, f32)| if b.1 < a.1 { b } else { a };
    let best = usual.map(|offset| (offset, cost(offset))).fold((offset, f32::INFINITY), less);
    let other = others.map(|offset| (offset, cost(offset))).fold((offset, f32::INFINITY), less);
    // Another moment must be clearly better than coding noise and lost movement explain.
    Guess::Shown(if other.1 < best.1 * CLEARLY - 0.01 { other.0 } else { best.0 })
}

/// Returns the median difference of unrelated frames.
pub fn stranger(sides: &Sides, samples: &[usize]) -> f32 {
    let count = sides.distorted.len();
    let distances = samples.iter().map(|i| sides.distance(*i, (i * 7919 + count / 2 + 13) % count));
    middle(distances.collect()).unwrap_or_default()
}

/// Candidates for each reference frame, with their distances.
struct Band {
    /// First distorted frame of each row.
    first: Vec<usize>,
    width: usize,
    distances: Vec<u16>,
}

impl Band {
    fn new(sides: &Sides, guess: Guess) -> Self {
        let (rows, columns) = (sides.reference.len(), sides.distorted.len());
        let reach = REACH + rows.abs_diff(columns).min(1000);
        let width = (2 * reach + 1).min(columns);
        let place = |i: usize| {
            let centre = sides.guessed(guess, i) - reach as i64;
            usize::try_from(centre).unwrap_or(0).min(columns - width)
        };
        let first: Vec<_> = (0..rows).map(place).collect();
        let mut distances = Vec::with_capacity(rows * width);
        for (i, first) in first.iter().enumerate() {
            distances.extend((*first..first + width).map(|j| (sides.distance(i, j) * STEP) as u16));
        }
        Self { first, width, distances }
    }

    fn row(&self, i: usize) -> &[u16] {
        &self.distances[i * self.width..(i + 1) * self.width]
    }

    /// Returns the smallest distance of each distorted frame, with its reference frame.
    fn least(&self, columns: usize) -> Vec<(u16, usize)> {
        let mut least = vec![(u16::MAX, 0); columns];
        for (i, first) in self.first.iter().enumerate() {
            for (least, distance) in least[*first..].iter_mut().zip(self.row(i)) {
                *least = (*least).min((*distance, i));
            }
        }
        least
    }

    /// Returns the usual difference of pairs around each reference frame: the median of the smallest distances of
    /// rows or columns. Some frames of the side with more frames have no partners.
    fn noise(&self, of_columns: &[u16]) -> Vec<f32> {
        let columns = of_columns.len();
        let of_rows: Vec<u16> =
            (0..self.first.len()).map(|i| self.row(i).iter().copied().min().unwrap_or(0)).collect();
        let around = |values: &[u16], at: usize| {
            let around = at.saturating_sub(AROUND)..(at + AROUND + 1).min(values.len());
            middle(values.get(around).unwrap_or_default().to_vec()).unwrap_or(u16::MAX)
        };
        let at = |i: usize| {
            let centre = (self.first[i] + self.width / 2).min(columns.saturating_sub(1));
            f32::from(around(&of_rows, i).min(around(of_columns, centre))) / STEP
        };
        (0..self.first.len()).map(at).collect()
    }
}

/// Movement of the distorted video from frame to frame, along the direction of the original's movement.
struct Steps<'a> {
    sides: Sides<'a>,
    /// Change of each frame from the one before, in the original and in the distorted video.
    changes: [Vec<f32>; 2],
    /// Usual values around each reference frame.
    usual: Vec<Usual>,
}

/// Median values of steps around a frame, in 8-bit steps.
#[derive(Clone, Copy)]
struct Usual {
    /// Error of the movement's length.
    missed: f32,
    /// Change across the direction of movement.
    besides: f32,
}

impl<'a> Steps<'a> {
    fn new(sides: &Sides<'a>, guess: Guess) -> Self {
        let changes = [sides.reference, sides.distorted].map(|shots| {
            let changes = shots.windows(2).map(|pair| pair[0].picture.distance(&pair[1].picture));
            std::iter::once(0.0).chain(changes).collect()
        });
        let mut steps = Self { sides: *sides, changes, usual: vec![] };
        let rows = sides.reference.len();
        let found: Vec<_> = (0..rows).map(|i| steps.step(i, guessed_step(sides, guess, i)?)).collect();
        let usual = |i: usize| {
            let around = found[i.saturating_sub(AROUND)..(i + AROUND + 1).min(rows)].iter().flatten();
            let (missed, besides): (Vec<_>, Vec<_>) =
                around.map(|(along, besides)| (along.abs(), *besides)).unzip();
            let is_known = missed.len() >= AROUND / 2;
            let of = |values| middle(values).filter(|_| is_known).unwrap_or(f32::INFINITY);
            Usual { missed: of(missed), besides: of(besides) }
        };
        steps.usual = (0..rows).map(usual).collect();
        steps
    }

    /// Returns the surplus length of the movement to a distorted frame, and the change across it.
    fn step(&self, i: usize, j: usize) -> Option<(f32, f32)> {
        let (before, earlier) = (i.checked_sub(1)?, j.checked_sub(1)?);
        let [own, other] = [self.changes[0][i], self.changes[1][j]];
        let [from, to] = [before, i].map(|i| &self.sides.reference[i].picture);
        let [earlier, later] = [earlier, j].map(|j| &self.sides.distorted[j].picture);
        let along = Small::along((from, to), (earlier, later)) / own.max(LEAST_CHANGE);
        let besides = (other * other - along * along).max(0.0).sqrt();
        (own > LEAST_CHANGE).then_some((along - own, besides))
    }

    /// Returns true if movement is large enough to identify the next frame.
    fn is_readable(&self, i: usize) -> bool {
        self.usual[i].missed * READABLE < self.changes[0][i]
    }

    /// Returns the additional cost of a pair that follows a pair.
    fn cost(&self, i: usize, j: usize) -> u32 {
        // The last frame has no successor that catches up, and encoders may omit its movement.
        let is_last = i + 1 == self.changes[0].len() || j + 1 == self.changes[1].len();
        let is_readable = !is_last && self.is_readable(i);
        let Some((missed, besides)) = is_readable.then(|| self.step(i, j)).flatten() else { return 0 };
        // With other changes as well, the frame is damaged.
        if besides > self.usual[i].besides * 2.0 + LEAST_CHANGE {
            return 0;
        }
        let (own, noise) = (self.changes[0][i], 3.0 * self.usual[i].missed);
        let missed = (missed.abs() - noise) / (own - noise);
        (missed.clamp(0.0, 1.0) * MISSTEP) as u32
    }

    /// Returns the reference frames at which the guess repeats the frame before: zero steps followed by several at
    /// once, which cost more than a lost frame and its repetition.
    fn frozen(&self, guess: Guess) -> Vec<usize> {
        let mut frozen = vec![];
        let mut catches_up = false;
        for i in (0..self.usual.len()).rev() {
            let misstep = guessed_step(&self.sides, guess, i).filter(|j| 2 * self.cost(i, *j) > LOST + COPY);
            let missed = misstep.and_then(|j| self.step(i, j)).map(|(missed, _)| missed);
            let stands = missed.is_some_and(|missed| missed < 0.0);
            if stands && catches_up {
                frozen.push(i);
            }
            catches_up = missed.is_some() && (catches_up || !stands);
        }
        frozen
    }

    /// Returns true if the guess has a zero or double step near this reference frame.
    fn contradict(&self, guess: Guess, at: usize) -> bool {
        let around = at.saturating_sub(1)..(at + 2).min(self.usual.len());
        let mut costs = around.filter_map(|i| Some(self.cost(i, guessed_step(&self.sides, guess, i)?)));
        costs.any(|cost| cost as f32 > MISSTEP / 2.0)
    }
}

/// Returns the guessed distorted frame if the previous one belongs to the previous reference frame.
fn guessed_step(sides: &Sides, guess: Guess, i: usize) -> Option<usize> {
    let (before, j) = (sides.guessed_pair(guess, i.checked_sub(1)?)?, sides.guessed_pair(guess, i)?);
    (before + 1 == j).then_some(j)
}

/// A cost: of the pictures, then the distance from the guess.
type Cost = (u32, f32);

const NEVER: Cost = (u32::MAX, f32::MAX);

fn add(cost: Cost, more: u32, missed: f32) -> Cost {
    if cost == NEVER { NEVER } else { (cost.0.saturating_add(more), cost.1 + missed) }
}

fn less(a: Cost, b: Cost) -> bool {
    (a.0, a.1.to_bits()) < (b.0, b.1.to_bits())
}

/// The last move of a path through the band, and if the one before was a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    Pair { behind_pair: bool },
    Lost { behind_pair: bool },
    Extra { behind_pair: bool },
}

/// The cheapest paths to a place that end with a pair, and with an unpaired frame.
#[derive(Clone, Copy)]
struct Ways {
    costs: [Cost; 2],
    moves: [Move; 2],
}

impl Ways {
    const NONE: Self = Self { costs: [NEVER; 2], moves: [Move::Extra { behind_pair: false }; 2] };

    fn start(cost: Cost) -> Self {
        Self { costs: [NEVER, cost], ..Self::NONE }
    }

    fn consider(&mut self, cost: Cost, how: Move) {
        let ends = usize::from(!matches!(how, Move::Pair { .. }));
        if less(cost, self.costs[ends]) {
            (self.costs[ends], self.moves[ends]) = (cost, how);
        }
    }

    /// Returns the cheaper one.
    fn best(&self) -> usize {
        usize::from(!less(self.costs[0], self.costs[1]))
    }
}

/// Returns the distorted frame of each reference frame, if there is one.
pub fn align(sides: &Sides, guess: Guess) -> Vec<Option<usize>> {
    let (rows, columns) = (sides.reference.len(), sides.distorted.len());
    if rows == 0 || columns == 0 {
        return vec![None; rows];
    }
    let band = Band::new(sides, guess);
    let steps = Steps::new(sides, guess);
    let found = cheapest(sides, guess, &band, &steps);
    settle(sides, guess, &steps, found)
}

fn pair_cost(distance: u16, noise: f32) -> u32 {
    let excess = (f32::from(distance) / STEP - noise) / (noise + LEAST_NOISE);
    ((excess - FREE).clamp(0.0, WORST) * UNIT) as u32
}

/// Returns which frames repeat the one before.
pub fn repeats(shots: &[Shot]) -> Vec<bool> {
    let same = |pair: &[Shot]| pair[0].picture.distance(&pair[1].picture) <= SAME;
    std::iter::once(false).chain(shots.windows(2).map(same)).take(shots.len()).collect()
}

/// The search for the cheapest path through the band. Row `i` of its places means `i` reference frames so far; the
/// column gives the distorted frames so far.
struct Search<'a> {
    sides: &'a Sides<'a>,
    guess: Guess,
    band: &'a Band,
    steps: &'a Steps<'a>,
    /// Usual difference of pairs around each reference frame.
    noise: Vec<f32>,
    /// Costs of reference frames and of distorted frames without a partner.
    lost: Vec<u32>,
    extra: Vec<u32>,
    /// Reference frame that each distorted frame shows, for [`Guess::Shown`].
    shown: Vec<Option<usize>>,
    /// Typical time between reference frames.
    frame: f32,
}

impl<'a> Search<'a> {
    fn new(sides: &'a Sides<'a>, guess: Guess, band: &'a Band, steps: &'a Steps<'a>) -> Self {
        let columns = sides.distorted.len();
        let least = band.least(columns);
        let noise = band.noise(&least.iter().map(|(distance, _)| *distance).collect::<Vec<_>>());
        let of_extra = |(repeats, (distance, i)): (bool, (u16, usize))| match repeats {
            true => REPEAT,
            false if pair_cost(distance, noise[i]) <= SHOWN => COPY,
            false => SPOILT,
        };
        let extra = repeats(sides.distorted).into_iter().zip(least).map(of_extra).collect();
        let of_lost = |(i, repeats)| if repeats && !steps.is_readable(i) { REPEAT } else { LOST };
        let lost = repeats(sides.reference).into_iter().enumerate().map(of_lost).collect();
        let shown = match guess {
            Guess::Shown(offset) => (0..columns).map(|j| sides.shown(offset, j)).collect(),
            _ => vec![],
        };
        let frame = sides.typical(true).max(1) as f32;
        Self { sides, guess, band, steps, noise, lost, extra, shown, frame }
    }

    /// Returns the number of places in a row.
    fn places(&self) -> usize {
        self.band.width + 1
    }

    /// Returns the number of distorted frames at the first place of a row.
    fn first(&self, row: usize) -> usize {
        self.band.first[row.saturating_sub(1)]
    }

    /// Returns the distance of a pair from the guess, in frames.
    fn missed(&self, i: usize, j: usize) -> f32 {
        match self.guess {
            Guess::Number(shift) => (i as i64 + shift).abs_diff(j as i64) as f32,
            Guess::Time(offset) => {
                let at = self.sides.reference[i].time as i64 + offset;
                at.abs_diff(self.sides.distorted[j].time as i64) as f32 / self.frame
            }
            Guess::Shown(_) => {
                self.shown.get(j).copied().flatten().map_or(1.0, |shown| shown.abs_diff(i) as f32)
            }
        }
    }

    /// Returns the row before all reference frames, where distorted frames have no partner.
    fn start(&self) -> Vec<Ways> {
        let mut row = vec![Ways::NONE; self.places()];
        let first = self.first(0);
        row[0] = Ways::start((self.extra[..first].iter().sum(), 0.0));
        for place in 1..self.places().min(self.extra.len() - first + 1) {
            row[place] = Ways::start(add(row[place - 1].costs[1], self.extra[first + place - 1], 0.0));
        }
        row
    }

    /// Returns the row that follows another one.
    fn next(&self, row: usize, before: &[Ways]) -> Vec<Ways> {
        let mut ways = Vec::with_capacity(self.places());
        for place in 0..self.places() {
            let next = self.ways(row, place, before, &ways);
            ways.push(next);
        }
        ways
    }

    /// Returns the cheapest paths to a place, by those to the row before and to the places before in its own row.
    fn ways(&self, row: usize, place: usize, before: &[Ways], own_row: &[Ways]) -> Ways {
        let (i, j, from) = (row - 1, self.first(row) + place, self.first(row - 1));
        let earlier = |j: usize| j.checked_sub(from).and_then(|at| before.get(at)).map(|ways| ways.costs);
        let mut ways = Ways::NONE;
        if let (Some(own), Some([pair, gap])) = (j.checked_sub(1), j.checked_sub(1).and_then(earlier))
            && let Some(distance) =
                own.checked_sub(self.band.first[i]).and_then(|at| self.band.row(i).get(at))
        {
            let (cost, missed) = (pair_cost(*distance, self.noise[i]), self.missed(i, own));
            if pair != NEVER {
                let cost = cost + self.steps.cost(i, own);
                ways.consider(add(pair, cost, missed), Move::Pair { behind_pair: true });
            }
            ways.consider(add(gap, cost, missed), Move::Pair { behind_pair: false });
        }
        for (end, cost) in earlier(j).into_iter().flatten().enumerate() {
            ways.consider(add(cost, self.lost[i], 0.0), Move::Lost { behind_pair: end == 0 });
        }
        if let Some(left) = own_row.last().filter(|_| j <= self.extra.len()) {
            for (end, cost) in left.costs.into_iter().enumerate() {
                ways.consider(add(cost, self.extra[j - 1], 0.0), Move::Extra { behind_pair: end == 0 });
            }
        }
        ways
    }

    /// Returns the place in the last row at which the cheapest path ends. Distorted frames after it have no partner.
    fn end(&self, last_row: &[Ways]) -> Option<usize> {
        let columns = self.extra.len();
        let first = self.first(self.lost.len());
        let cost = |place: usize| {
            let behind: u32 = self.extra[first + place..].iter().sum();
            add(last_row[place].costs[last_row[place].best()], behind, 0.0)
        };
        let ends = (0..last_row.len()).filter(|place| first + place <= columns);
        let costs = ends.map(|place| (place, cost(place))).filter(|(_, cost)| *cost != NEVER);
        costs.min_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(place, _)| place)
    }

    /// Returns the pairs of a path by the moves to each place, from its end to its beginning.
    fn trace(&self, moves: &[[Move; 2]], end: usize, mut way: usize) -> Vec<Option<usize>> {
        let rows = self.lost.len();
        let (mut i, mut j) = (rows, self.first(rows) + end);
        let mut pairs = vec![None; rows];
        while i > 0 {
            let Some(place) = j.checked_sub(self.first(i)) else { break };
            let Some(moves) = moves.get(i * self.places() + place) else { break };
            let behind = match moves[way] {
                Move::Pair { behind_pair } => {
                    (i, j) = (i - 1, j - 1);
                    pairs[i] = Some(j);
                    behind_pair
                }
                Move::Lost { behind_pair } => {
                    i -= 1;
                    behind_pair
                }
                Move::Extra { behind_pair } if j > 0 => {
                    j -= 1;
                    behind_pair
                }
                Move::Extra { .. } => break,
            };
            way = usize::from(!behind);
        }
        pairs
    }
}

/// Returns the pairs of the cheapest path.
fn cheapest(sides: &Sides, guess: Guess, band: &Band, steps: &Steps) -> Vec<Option<usize>> {
    let search = Search::new(sides, guess, band, steps);
    let rows = sides.reference.len();
    let mut row = search.start();
    let mut moves = Vec::with_capacity((rows + 1) * search.places());
    // The path ends at the row before all frames, so its moves are not read.
    moves.resize(search.places(), Ways::NONE.moves);
    for i in 1..=rows {
        row = search.next(i, &row);
        moves.extend(row.iter().map(|ways| ways.moves));
    }
    match search.end(&row) {
        Some(end) => search.trace(&moves, end, row[end].best()),
        // A pause longer than the band has no path.
        None => (0..rows).map(|i| sides.guessed_pair(guess, i)).collect(),
    }
}

/// Restores the guess between two places, or everywhere, if departing from it is not decisive.
fn settle(sides: &Sides, guess: Guess, steps: &Steps, mut pairs: Vec<Option<usize>>) -> Vec<Option<usize>> {
    let guessed: Vec<_> = (0..pairs.len()).map(|i| sides.guessed_pair(guess, i)).collect();
    // For a rate conversion, timestamps are at least as reliable about dropped frames.
    let is_likely = sides.reference.len() == sides.distorted.len() || matches!(guess, Guess::Shown(_));
    let least = if is_likely { DECISIVE } else { LIKELY };
    let distances = guessed.iter().enumerate().filter_map(|(i, j)| Some(sides.distance(i, (*j)?)));
    let usual = middle(distances.collect()).unwrap_or_default();
    let mut i = 0;
    while i < pairs.len() {
        let run = (i..pairs.len()).take_while(|k| pairs[*k] != guessed[*k]).count();
        let (found, expected) = differences(sides, &pairs[i..i + run], &guessed[i..i + run], i);
        let lost = (i..i + run).filter(|k| pairs[*k].is_none() && guessed[*k].is_some()).count();
        let whole = run > lost;
        let is_readable = |at: usize| at == pairs.len() || steps.contradict(guess, at);
        let is_decisive =
            found <= expected * least || found < expected * SLOW && is_readable(i) && is_readable(i + run);
        if run > 0 && whole && !is_decisive {
            for k in i..i + run {
                // A frame that differs from its guessed partner has none, whatever its neighbours are paired with.
                let is_other = |j: usize| sides.distance(k, j) > usual * FOREIGN + 1.0;
                let stays = pairs[k].is_none() && guessed[k].is_some_and(is_other);
                pairs[k] = guessed[k].filter(|_| !stays);
            }
        }
        i += run.max(1);
    }
    // For two frozen frames, the cheapest path loses one, repeats one, and shifts everything between. That was
    // restored above.
    for i in steps.frozen(guess) {
        pairs[i] = pairs[i].filter(|j| guessed[i] != Some(*j));
    }
    pairs
}

/// Returns the differences of two pairings from a reference frame on: over all pairs if both have equally many,
/// otherwise over frames with a partner in both.
fn differences(
    sides: &Sides,
    found: &[Option<usize>],
    guessed: &[Option<usize>],
    first: usize,
) -> (f32, f32) {
    let count = |pairs: &[Option<usize>]| pairs.iter().flatten().count();
    let as_many = count(found) == count(guessed);
    let of = |pairs: &[Option<usize>], others: &[Option<usize>]| {
        let both = pairs.iter().zip(others).zip(first..);
        let both = both.filter(|((_, other), _)| as_many || other.is_some());
        both.filter_map(|((j, _), i)| Some(sides.distance(i, (*j)?))).sum::<f32>()
    };
    (of(found, guessed), of(guessed, found))
}

#[cfg(test)]
mod tests {
    use super::super::scan::{CELLS, Small};
    use super::*;

    /// Makes frames from contents and times: the content number seeds the cells, with noise from `seed`.
    fn shots(shown: &[(u64, u64)], seed: u64, noise: u16) -> Vec<Shot> {
        let of = |(number, time): &(u64, u64)| {
            let mut picture = fastrand::Rng::with_seed(*number);
            let mut coding = fastrand::Rng::with_seed(seed * 1000 + time);
            let cells = std::array::from_fn::<u16, CELLS, _>(|_| {
                20_000 + picture.u16(0..8000) + coding.u16(0..=noise)
            });
            Shot { time: *time, position: *time, picture: Small(cells) }
        };
        shown.iter().map(of).collect()
    }

    fn film(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        numbers.into_iter().zip(0..).map(|(number, place)| (number, place * 40)).collect()
    }

    /// Returns the number of wrong pairs, and the reference frames without a partner.
    fn aligned(reference: &[(u64, u64)], distorted: &[(u64, u64)], guess: Guess) -> (usize, Vec<u64>) {
        let [own, other] = [shots(reference, 1, 0), shots(distorted, 2, 900)];
        let pairs = align(&Sides { reference: &own, distorted: &other }, guess);
        let partners = pairs.iter().zip(reference);
        let wrong = partners.clone().filter(|(j, (number, _))| j.is_some_and(|j| distorted[j].0 != *number));
        let without = partners.clone().filter(|(j, _)| j.is_none()).map(|(_, (number, _))| *number);
        (wrong.count(), without.collect())
    }

    #[test]
    fn lost_and_repeated_frames_are_found() {
        let whole = film(0..90);
        assert_eq!(aligned(&whole, &whole, Guess::Number(0)), (0, vec![]));
        let lost = film((0..90).filter(|number| ![7, 50, 51].contains(number)));
        assert_eq!(aligned(&whole, &lost, Guess::Number(0)), (0, vec![7, 50, 51]));
        let repeated =
            film((0..90).flat_map(|number| std::iter::repeat_n(number, 1 + usize::from(number % 30 == 9))));
        assert_eq!(aligned(&whole, &repeated, Guess::Number(0)), (0, vec![]));
        let frozen = film((0..90).map(|number| if number % 20 == 9 { number - 1 } else { number }));
        assert_eq!(aligned(&whole, &frozen, Guess::Number(0)), (0, vec![9, 29, 49, 69, 89]));
    }

    #[test]
    fn pictures_that_stand_still_follow_the_guess() {
        let still = film(std::iter::repeat_n(3, 60));
        assert_eq!(aligned(&still, &still, Guess::Number(0)), (0, vec![]));
        // The missing frames are where the timestamps have a gap.
        let times: Vec<_> = still.iter().copied().filter(|(_, time)| *time != 800).collect();
        let [own, other] = [shots(&still, 1, 0), shots(&times, 2, 900)];
        let pairs = align(&Sides { reference: &own, distorted: &other }, Guess::Time(0));
        assert_eq!(pairs.iter().position(Option::is_none), Some(20));
    }

    /// Makes frames that change by half a step each, `distance` apart, under coding noise of two steps that changes
    /// by a fifth per frame.
    fn slow(numbers: &[u64], distance: u64, noise: f64) -> Vec<Shot> {
        let of = |(number, place): (&u64, u64)| {
            let coding = |seed: u64| {
                move |cell: usize| fastrand::Rng::with_seed(seed * 1000 + cell as u64).f64() - 0.5
            };
            let (lasting, passing) = (coding(place / 50), coding(1000 + place));
            let cells = std::array::from_fn::<u16, CELLS, _>(|cell| {
                let moved = *number as f64 * [-0.5, 0.5][cell % 2];
                let coded = noise * (lasting(cell) * 7.0 + passing(cell) * 0.4);
                ((100.0 + moved + coded) * 256.0) as u16
            });
            Shot { time: place * distance, position: place * distance, picture: Small(cells) }
        };
        numbers.iter().zip(0..).map(of).collect()
    }

    /// Returns the number of wrong pairs, and the unpaired reference and distorted frames.
    fn slowly(distorted: &[u64]) -> (usize, Vec<usize>, Vec<usize>) {
        let film: Vec<_> = (0..100).collect();
        let [own, other] = [slow(&film, 40, 0.0), slow(distorted, 40, 1.0)];
        let pairs = align(&Sides { reference: &own, distorted: &other }, Guess::Number(0));
        let wrong = pairs.iter().enumerate().filter(|(i, j)| j.is_some_and(|j| distorted[j] != *i as u64));
        let lost = (0..100).filter(|i| pairs[*i].is_none()).collect();
        let extra = (0..distorted.len()).filter(|j| !pairs.contains(&Some(*j))).collect();
        (wrong.count(), lost, extra)
    }

    #[test]
    fn lost_and_repeated_frames_are_found_in_slow_movement_below_the_noise() {
        assert_eq!(slowly(&(0..100).collect::<Vec<_>>()), (0, vec![], vec![]));
        let frozen: Vec<_> = (0..100).map(|i| if [30, 61].contains(&i) { i - 1 } else { i }).collect();
        assert_eq!(slowly(&frozen), (0, vec![30, 61], vec![30, 61]));
        let lost: Vec<_> = (0..100).filter(|i| *i != 40).collect();
        assert_eq!(slowly(&lost), (0, vec![40], vec![]));
        // The same number of frames, with the ones between shifted.
        let mut both = lost;
        both.insert(70, 70);
        let (wrong, lost, extra) = slowly(&both);
        assert!(
            wrong == 0 && lost == [40] && [[69], [70]].contains(&[extra[0]]),
            "{wrong} {lost:?} {extra:?}"
        );
    }

    #[test]
    fn spoilt_frames_of_slow_movement_are_scored() {
        let film: Vec<_> = (0..100).collect();
        let [own, mut other] = [slow(&film, 40, 0.0), slow(&film, 40, 1.0)];
        for (cell, value) in other[50].picture.0.iter_mut().enumerate() {
            *value = value.saturating_add_signed([1500, -1500, -1400, 1400][cell % 4]);
        }
        let pairs = align(&Sides { reference: &own, distorted: &other }, Guess::Number(0));
        assert!(pairs.iter().enumerate().all(|(i, j)| *j == Some(i)), "{pairs:?}");
    }

    #[test]
    fn frames_of_another_rate_are_those_that_were_taken() {
        let film: Vec<_> = (0..120).collect();
        let own = slow(&film, 16_666_667, 0.0);
        // ffmpeg takes the last frame before the middle of two output frames, others take the nearest or the previous
        // one.
        for (frame, early) in
            [(41_666_667, 20_833_333), (41_666_667, 8_333_333), (40_000_000, 0), (66_666_667, 33_333_333)]
        {
            let shown =
                |k: u64| (0..120).rev().find(|i| i * 16_666_667 < k * frame + early + 1000).unwrap_or(0);
            let taken: Vec<_> = (0..30).map(shown).take_while(|i| *i < 119).collect();
            let other = slow(&taken, frame, 0.5);
            let sides = Sides { reference: &own, distorted: &other };
            let pairs = align(&sides, super::taken(&sides, 0));
            let wrong = pairs.iter().enumerate().filter(|(i, j)| j.is_some_and(|j| taken[j] != *i as u64));
            assert_eq!((wrong.count(), pairs.iter().flatten().count()), (0, taken.len()), "{frame} {early}");
        }
    }

    #[test]
    fn a_spoilt_frame_is_scored_as_one() {
        let whole = film(0..60);
        let spoilt = film((0..60).map(|number| if number == 30 { 1000 } else { number }));
        assert_eq!(aligned(&whole, &spoilt, Guess::Number(0)), (1, vec![]));
    }
}
