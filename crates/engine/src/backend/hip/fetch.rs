// SPDX-License-Identifier: MPL-2.0

//! Copies pictures from the GPU's memory back to the host.

use gpu::{Direction, Pinned, Rectangle, Stream, copy_rectangle};

use crate::backend::BackendError;
use crate::frame::{Picture, Samples};

/// Copies each component of a picture on a GPU to host memory with packed rows, through a stream of that GPU, and waits
/// for the copies. `size`: bytes of a sample.
pub fn fetch(stream: &Stream, picture: &Picture<'_>, size: usize) -> Result<Vec<Vec<u8>>, BackendError> {
    let mut rows = vec![];
    let begun = begin(stream, picture, size, &mut rows);
    // Copies that have begun still write to the memory.
    let done = stream.synchronize();
    begun.and(done.map_err(BackendError::from))?;
    Ok(rows.into_iter().map(|(pinned, length)| pinned.bytes()[..length].to_vec()).collect())
}

/// Starts the copies of the components and returns their memory and lengths.
fn begin(
    stream: &Stream,
    picture: &Picture<'_>,
    size: usize,
    rows: &mut Vec<(Pinned, usize)>,
) -> Result<(), BackendError> {
    for producer in picture.lease.iter().flat_map(|lease| lease.producers()) {
        // SAFETY: the creator of the lease has promised that the stream lives as long as the lease.
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
