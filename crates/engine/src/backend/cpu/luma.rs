// SPDX-License-Identifier: MPL-2.0

//! The luma of reference pictures, kept for the motion of later ones. Groups are computed in any order, so each has
//! what it compares with: a picture that is leased stays where it is, one that is only borrowed is copied.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::import::{Unpacked, as_it_lies};
use crate::backend::cpu::plane::AnyPlane;
use crate::frame::{BitDepth, Component, Leased, Picture};

/// Room of luma that nobody needs any more.
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
    /// The picture, if it may be kept.
    leased: Option<Leased>,
    /// The samples, unless they can be read as they lie: who first needs them unpacks them.
    samples: OnceLock<Unpacked>,
    spare: Arc<Spare>,
}

impl Luma {
    /// The luma of a picture that stays where it is, as it is leased. Nothing is copied.
    pub fn leased(picture: Leased, depth: BitDepth, spare: &Arc<Spare>) -> Self {
        Self { depth, leased: Some(picture), samples: OnceLock::new(), spare: spare.clone() }
    }

    /// A copy of the luma of a picture that is only borrowed.
    pub fn copied(luma: &Component<'_>, depth: BitDepth, spare: &Arc<Spare>) -> Self {
        let mut samples = spare.take();
        samples.copy(luma, depth);
        Self { depth, leased: None, samples: OnceLock::from(samples), spare: spare.clone() }
    }

    /// The picture, if it is leased.
    pub fn picture(&self) -> Option<&Picture<'_>> {
        self.leased.as_ref().map(Leased::picture)
    }

    /// The luma; `None` where the picture is smaller than it says.
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
