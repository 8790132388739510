// SPDX-License-Identifier: MPL-2.0

//! The luma of reference pictures, kept for the motion of later pictures.
//!
//! Groups are computed in any order, so each group refers to its earlier pictures: a leased picture stays in place, a
//! borrowed one is copied.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::import::{Unpacked, as_it_lies};
use crate::backend::cpu::plane::AnyPlane;
use crate::frame::{BitDepth, Component, Leased, Picture};

/// Memory of luma that is no longer needed.
#[derive(Default)]
pub struct Spare(Mutex<Vec<Unpacked>>);

impl Spare {
    fn take(&self) -> Unpacked {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

/// The luma of one reference picture.
pub struct Luma {
    depth: BitDepth,
    /// The picture, if it is leased.
    leased: Option<Leased>,
    /// The samples, if they have to be unpacked; the first user unpacks them.
    samples: OnceLock<Unpacked>,
    spare: Arc<Spare>,
}

impl Luma {
    /// Refers to the luma of a leased picture, without copying it.
    pub fn leased(picture: Leased, depth: BitDepth, spare: &Arc<Spare>) -> Self {
        Self { depth, leased: Some(picture), samples: OnceLock::new(), spare: spare.clone() }
    }

    /// Copies the luma of a borrowed picture.
    pub fn copied(luma: &Component<'_>, depth: BitDepth, spare: &Arc<Spare>) -> Self {
        let mut samples = spare.take();
        samples.copy(luma, depth);
        Self { depth, leased: None, samples: OnceLock::from(samples), spare: spare.clone() }
    }

    /// Returns the picture if it is leased.
    pub fn picture(&self) -> Option<&Picture<'_>> {
        self.leased.as_ref().map(Leased::picture)
    }

    /// Returns the luma; `None` if the picture is smaller than its size says.
    pub fn plane(&self) -> Option<AnyPlane<'_>> {
        let component = self.picture().map(|picture| &picture.luma);
        let unpack = || {
            let mut samples = self.spare.take();
            component.into_iter().for_each(|component| samples.copy(component, self.depth));
            samples
        };
        let lies = component.and_then(|component| as_it_lies(component, self.depth));
        lies.or_else(|| self.samples.get_or_init(unpack).plane())
    }
}

impl Drop for Luma {
    fn drop(&mut self) {
        if let Some(samples) = self.samples.take() {
            self.spare.0.lock().unwrap_or_else(PoisonError::into_inner).push(samples);
        }
    }
}
