// SPDX-License-Identifier: MPL-2.0

//! Repairs boundaries at which neighbouring chunks have decoded other samples.
//!
//! One of them did not begin where its container says that decoding can begin. The later chunk is decoded from ever
//! earlier on, at last from the beginning of the file, where decoding is exact, and then the chunk before it. The
//! process that finishes the second of two neighbours does that, so no command waits for others.

use std::path::Path;

use super::as_whole;
use super::chunk::{self, Completion, Head, RunOptions, Scored};
use super::manifest::{Chunk, Title};
use score::error::Error;
use score::output;

/// Seconds by which decoding begins earlier at first.
const FIRST: f64 = 10.0;

/// Returns why something is to be done for a chunk: it has no results, or does not match the chunk before it.
pub fn missing(folder: &Path, title: &Title, chunk: &Chunk) -> Result<Option<String>, Error> {
    let Some(scored) = Scored::open(folder, title, chunk)? else {
        return Ok(Some(chunk::why_missing(folder, title, chunk)));
    };
    let Some((before, _)) = neighbours(title, chunk.number.saturating_sub(1)) else { return Ok(None) };
    let before = Scored::head(folder, title, before)?;
    Ok(before.and_then(|before| mismatch(&before, &scored.head)))
}

/// Describes how a chunk does not match the one before it; `None` if they match.
pub fn mismatch(before: &Head, head: &Head) -> Option<String> {
    let difference = before.tail.difference(&head.head)?;
    Some(format!("does not go on where the one before ends: {difference}"))
}

/// Decodes chunks from earlier on until a chunk matches its neighbours, as far as these are scored.
pub fn run(folder: &Path, title: &Title, chunk: &Chunk, options: &[String]) -> Result<Completion, Error> {
    // Boundaries by the number of the chunk before them.
    let mut unchecked = vec![chunk.number, chunk.number.saturating_sub(1)];
    while let Some(number) = unchecked.pop() {
        let Some((chunk, earlier)) = step(folder, title, number)? else { continue };
        let how = RunOptions { options: options.to_vec(), earlier };
        if let Completion::Interrupted(signal) = chunk::run(folder, title, chunk, &how)? {
            return Ok(Completion::Interrupted(signal));
        }
        output::print(format_args!(
            "{} repaired: decoded from {earlier} s earlier on",
            title.chunk_name(chunk)
        ))?;
        unchecked.extend([chunk.number, chunk.number.saturating_sub(1)]);
    }
    Ok(Completion::AlreadyValid)
}

/// Returns the chunk that is to be decoded again so that two neighbours match, and from how many seconds earlier on.
/// `None` if they match, or are not both scored.
fn step<'a>(folder: &Path, title: &'a Title, number: usize) -> Result<Option<(&'a Chunk, f64)>, Error> {
    let Some((before, chunk)) = neighbours(title, number) else { return Ok(None) };
    let heads = (Scored::head(folder, title, before)?, Scored::head(folder, title, chunk)?);
    let (Some(first), Some(second)) = heads else { return Ok(None) };
    let Some(mismatch) = mismatch(&first, &second) else { return Ok(None) };
    let again = |chunk, head: &Head| Some((chunk, earlier(chunk, head.earlier)?));
    let next = again(chunk, &second).or_else(|| again(before, &first));
    next.map(Some).ok_or_else(|| {
        Error::Failed(format!(
            "chunk {} {mismatch}, although both were decoded from the beginning; {}",
            title.chunk_name(chunk),
            as_whole(folder, title)
        ))
    })
}

/// Returns the chunk of a number, and the one after it.
fn neighbours(title: &Title, number: usize) -> Option<(&Chunk, &Chunk)> {
    let first = title.chunks.iter().position(|chunk| chunk.number == number)?;
    Some((title.chunks.get(first)?, title.chunks.get(first + 1)?))
}

/// Returns an earlier start than the last one, in seconds before the usual one; `None` if that was the beginning.
fn earlier(chunk: &Chunk, last: f64) -> Option<f64> {
    let most = chunk.part?.head.map_or(0.0, |head| head.from as f64 / 1e9).ceil();
    (last < most).then(|| (2.0 * last).max(FIRST).min(most))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{Part, Window};
    use super::*;

    #[test]
    fn starts_come_earlier_until_the_beginning() {
        let starts = |from: Option<f64>| {
            let head = from.map(|from| Window { from: (from * 1e9) as u64, to: u64::MAX });
            let part = Part { frames: (0, 1), from: 0, to: None, head, tail: None, slack: 0 };
            let chunk = Chunk { number: 1, part: Some(part) };
            std::iter::successors(earlier(&chunk, 0.0), |last| earlier(&chunk, *last)).collect::<Vec<_>>()
        };
        assert_eq!(starts(Some(59.5)), [10.0, 20.0, 40.0, 60.0]);
        assert_eq!(starts(Some(0.9)), [1.0]);
        assert_eq!(starts(None), [] as [f64; 0]);
    }
}
