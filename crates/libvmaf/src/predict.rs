// SPDX-License-Identifier: MPL-2.0

//! Scores of models, from the table, when they are asked for.

use std::ffi::CStr;

use engine::model::Bootstrap;

use crate::Errno;
use crate::context::State;
use crate::log::{Level, log};
use crate::model::Model;

/// Endings of the names that the scores of a collection have besides those of its members.
const ENDINGS: [&str; 4] = ["_bagging", "_stddev", "_ci_p95_lo", "_ci_p95_hi"];

/// The scores of a collection: mean, standard deviation, and the ends of the interval.
pub type CollectionScores = [f64; 4];

impl State {
    /// The score of a name, once the pair of the index is computed.
    pub fn feature(&mut self, name: &[u8], index: u32) -> Option<f64> {
        self.reader.wait_for(&mut self.collector, index);
        self.collector.score(name, index)
    }

    /// The score of a name that is stored at the flush only, if it cannot change any more.
    pub fn early_feature(&mut self, name: &CStr, index: u32) -> Option<f64> {
        self.reader.early_score(&mut self.collector, name.to_str().ok()?, index)
    }

    /// The features that a model reads, and true if all of them are final.
    fn inputs(&mut self, model: &Model, index: u32) -> Result<(Vec<f64>, bool), Errno> {
        self.reader.wait_for(&mut self.collector, index);
        let mut values = vec![];
        let mut is_final = true;
        for input in &model.inputs {
            if input.is_broken {
                let text = "vmaf_predict_score_at_index(): could not generate feature extractor context";
                log(Level::Error, text);
                return Err(Errno::INVALID);
            }
            let name = input.stored.as_deref().ok_or(Errno::INVALID)?;
            let value = self.collector.score(name.as_bytes(), index).or_else(|| {
                is_final = false;
                self.reader.early_score(&mut self.collector, name, index)
            });
            let Some(value) = value else {
                let text = format_args!(
                    "vmaf_predict_score_at_index(): no feature '{name}' at index {}",
                    index as i32
                );
                log(Level::Error, text);
                return Err(Errno::INVALID);
            };
            values.push(value);
        }
        Ok((values, is_final))
    }

    /// The score of a model. It is stored under the model's name, unless something that it follows from is not stored yet.
    pub fn model_score(&mut self, model: &Model, index: u32) -> Result<f64, Errno> {
        if let Some(known) = self.feature(&model.name, index) {
            return Ok(known);
        }
        let (values, is_final) = self.inputs(model, index)?;
        let score = model.model.score(&values, model.finish).score;
        if is_final {
            self.reader.drain(&mut self.collector);
            self.collector.append(&model.name, score, index)?;
        }
        Ok(score)
    }

    /// The scores of a collection. They are stored, with those of its members, and cannot be had a second time then.
    pub fn collection_scores(&mut self, collection: &Model, index: u32) -> Result<CollectionScores, Errno> {
        let (values, is_final) = self.inputs(collection, index)?;
        let Some(Bootstrap { members, bagging, stddev, ci_lo, ci_hi }) =
            collection.model.score(&values, collection.finish).bootstrap
        else {
            return Err(Errno::INVALID);
        };
        let scores = [bagging, stddev, ci_lo, ci_hi];
        if is_final {
            self.reader.drain(&mut self.collector);
            for (i, member) in members.iter().enumerate() {
                let name = [&collection.name[..], format!("_{:04}", i + 1).as_bytes()].concat();
                self.collector.append(&name, *member, index)?;
            }
            // As in libvmaf, of these only the first may be there already.
            let append = |(i, ending): (usize, &&str)| {
                let name = [&collection.name[..], ending.as_bytes()].concat();
                self.collector.append(&name, scores[i], index)
            };
            let appended: Vec<_> = ENDINGS.iter().enumerate().map(append).collect();
            appended.into_iter().skip(1).collect::<Result<(), _>>()?;
        }
        Ok(scores)
    }

    /// The indices of a range that subsampling leaves.
    fn chosen(&self, low: u32, high: u32) -> impl Iterator<Item = u32> + use<> {
        let step = self.reader.subsample();
        let first = low.checked_next_multiple_of(step);
        let next = move |index: &u32| index.checked_add(step);
        std::iter::successors(first, next).take_while(move |index| *index <= high)
    }

    /// One number for the stored scores of a name.
    pub fn pooled(&mut self, name: &[u8], method: u32, low: u32, high: u32) -> Result<f64, Errno> {
        if low > high || method == 0 {
            return Err(Errno::INVALID);
        }
        self.reader.drain(&mut self.collector);
        let (mut count, mut min, mut max, mut sum, mut inverse) = (0u32, 0.0, 0.0, 0.0, 0.0);
        for index in self.chosen(low, high) {
            let score = self.collector.score(name, index).ok_or(Errno::INVALID)?;
            count += 1;
            sum += score;
            inverse += 1.0 / (score + 1.0);
            // As in libvmaf, both begin at 0 where the first index is left out.
            if index == low || score < min {
                min = score;
            }
            if index == low || score > max {
                max = score;
            }
        }
        let count = f64::from(count);
        match method {
            1 => Ok(min),
            2 => Ok(max),
            3 => Ok(sum / count),
            4 => Ok(count / inverse - 1.0),
            _ => Err(Errno::INVALID),
        }
    }

    /// One number for the scores of a model.
    pub fn pooled_model(&mut self, model: &Model, method: u32, low: u32, high: u32) -> Result<f64, Errno> {
        if low > high || method == 0 {
            return Err(Errno::INVALID);
        }
        self.reader.drain(&mut self.collector);
        for index in self.chosen(low, high) {
            self.model_score(model, index)?;
        }
        self.pooled(&model.name, method, low, high)
    }

    /// One number for each of the scores of a collection.
    pub fn pooled_collection(
        &mut self,
        collection: &Model,
        method: u32,
        low: u32,
        high: u32,
    ) -> Result<CollectionScores, Errno> {
        if low > high || method == 0 {
            return Err(Errno::INVALID);
        }
        self.reader.drain(&mut self.collector);
        for index in self.chosen(low, high) {
            self.collection_scores(collection, index)?;
        }
        let mut scores = CollectionScores::default();
        for (score, ending) in scores.iter_mut().zip(ENDINGS) {
            let name = [&collection.name[..], ending.as_bytes()].concat();
            *score = self.pooled(&name, method, low, high)?;
        }
        Ok(scores)
    }
}
