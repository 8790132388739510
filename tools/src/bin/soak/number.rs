// SPDX-License-Identifier: MPL-2.0

//! Numbers in pictures: blocks of black and white that survive an encoder.
//!
//! Two numbers differ in at least two blocks. So the PSNR of two frames with different numbers is low, even if they are
//! equal otherwise: below 10 log10(255^2 P / (2 * 16^2 * 219^2)), which is 21 dB for P = 320x180 samples.

use gst_video::prelude::*;
use gst_video::{VideoFrameRef, VideoInfo};

/// The size of a block in samples, and the blocks in a row.
const SIZE: usize = 16;
const COLUMNS: usize = 12;
const BITS: usize = 2 * COLUMNS;
const BLACK: u8 = 16;
const WHITE: u8 = 235;

/// The smallest PSNR of a right pair, in dB: above the 21 dB of frames with different numbers, and below the quality of the
/// encoders.
pub const LOWEST_PSNR: f64 = 22.0;

/// Returns the number with a parity bit.
fn code(number: u64) -> u64 {
    let number = number & ((1 << (BITS - 1)) - 1);
    number << 1 | u64::from(number.count_ones() & 1)
}

/// Returns the first row and column of the block of a bit.
fn block(bit: usize) -> (usize, usize) {
    (bit / COLUMNS * SIZE, bit % COLUMNS * SIZE)
}

/// Draws a number.
pub fn write(buffer: &mut gst::BufferRef, info: &VideoInfo, number: u64) -> Option<()> {
    let mut frame = VideoFrameRef::from_buffer_ref_writable(buffer, info).ok()?;
    let stride = usize::try_from(frame.plane_stride()[0]).ok()?;
    let luma = frame.plane_data_mut(0).ok()?;
    for bit in 0..BITS {
        let (top, left) = block(bit);
        let value = if code(number) >> bit & 1 == 1 { WHITE } else { BLACK };
        for row in top..top + SIZE {
            luma.get_mut(row * stride + left..row * stride + left + SIZE)?.fill(value);
        }
    }
    Some(())
}

/// Reads a number; `None` without an intact one.
pub fn read(buffer: &gst::BufferRef, info: &VideoInfo) -> Option<u64> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).ok()?;
    let stride = usize::try_from(frame.plane_stride()[0]).ok()?;
    let luma = frame.plane_data(0).ok()?;
    let mut read = 0;
    for bit in 0..BITS {
        let (top, left) = block(bit);
        let mut sum = 0;
        for row in top + SIZE / 4..top + 3 * SIZE / 4 {
            let samples = luma.get(row * stride + left + SIZE / 4..row * stride + left + 3 * SIZE / 4)?;
            sum += samples.iter().map(|sample| usize::from(*sample)).sum::<usize>();
        }
        read |= u64::from(sum / (SIZE * SIZE / 4) > usize::from(BLACK.midpoint(WHITE))) << bit;
    }
    (code(read >> 1) == read).then_some(read >> 1)
}

/// Returns the video format of a pad.
pub fn info(pad: &gst::Pad) -> Option<VideoInfo> {
    VideoInfo::from_caps(&*pad.current_caps()?).ok()
}

/// Returns the running time of a buffer on a pad.
pub fn running_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<gst::ClockTime>()?.to_running_time(buffer.pts()?)
}
