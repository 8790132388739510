// SPDX-License-Identifier: MPL-2.0

//! Pictures back from the GPU's memory, for the CPU to look at.

use gpu::{Direction, Pinned, Rectangle, Stream, copy_rectangle};

use crate::backend::BackendError;
use crate::frame::{Picture, Samples};

/// The bytes of each component of a picture in a GPU's memory, rows without gaps, through a stream of that GPU. `size` is that
/// of a sample. Waits until they are there.
pub fn fetch(stream: &Stream, picture: &Picture<'_>, size: usize) -> Result<Vec<Vec<u8>>, BackendError> {
    let mut rows = vec![];
    let begun = begin(stream, picture, size, &mut rows);
    // Whatever has begun still writes there.
    let done = stream.synchronize();
    begun.and(done.map_err(BackendError::from))?;
    Ok(rows.into_iter().map(|(pinned, length)| pinned.bytes()[..length].to_vec()).collect())
}

/// Has the components copied into memory of their own, each with its length.
fn begin(
    stream: &Stream,
    picture: &Picture<'_>,
    size: usize,
    rows: &mut Vec<(Pinned, usize)>,
) -> Result<(), BackendError> {
    for producer in picture.lease.iter().flat_map(|lease| lease.producers()) {
        // SAFETY: whoever made the lease has promised that its producer lives as long.
        unsafe { stream.wait_for_stream(*producer)? };
    }
    for component in [picture.luma].into_iter().chain(picture.chroma.into_iter().flatten()) {
        let Samples::Device(address) = component.samples else { return Err(BackendError::Picture("cpu")) };
        let width = (component.width.saturating_sub(1) * component.step + 1) * size;
        let pinned = Pinned::new(stream.device().clone(), width * component.height)?;
        let to = Rectangle { address: pinned.address(), pitch: width };
        let from = Rectangle { address: address.get(), pitch: component.stride };
        rows.push((pinned, width * component.height));
        // SAFETY: pictures in device memory have leases, which the caller holds; the memory for the copy is that large. Both
        // are left alone until the stream is done: one that cannot be waited for is on a lost device, which copies nothing.
        unsafe { copy_rectangle(stream, to, from, width, component.height, Direction::DeviceToHost)? };
    }
    Ok(())
}
