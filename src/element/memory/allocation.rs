// SPDX-License-Identifier: MPL-2.0

//! The answer to upstream's allocation query.

use gst::prelude::*;
use gst::query::Allocation;
use gst_video::{VideoBufferPool, VideoInfo, VideoMeta};

use super::super::caps;
use super::allocator::PinnedAllocator;

/// Asks for as many buffers more as the element holds back, so that a producer with a fixed number of buffers does not run
/// dry; and offers page-locked memory, unless an element downstream has offered a pool.
pub fn answer(query: &mut Allocation, pinned: Option<&PinnedAllocator>, held: u32) {
    let caps = query.get_owned().0;
    let info = caps.as_ref().and_then(|caps| caps::info(caps));
    let system = caps.as_ref().is_some_and(|caps| caps::is_system_memory(caps));
    let offered = query
        .allocation_pools()
        .next()
        .map(|(pool, size, min, max)| (pool.map(|p| p.to_owned()), size, min, max));
    let (pool, size, min, max) = offered.clone().unwrap_or_default();
    let size = if offered.is_some() { size } else { info.as_ref().map_or(0, VideoInfo::size) as u32 };
    let (min, max) = (min + held, if max == 0 { 0 } else { max + held });
    let pool = match (pool, pinned, &caps) {
        (None, Some(pinned), Some(caps)) if system => {
            let with_meta = query.find_allocation_meta::<VideoMeta>().is_some();
            offer_memory(query, pinned);
            new_pool(pinned, caps, size, min, max, with_meta)
        }
        (pool, ..) => pool,
    };
    match offered {
        Some(_) => query.set_nth_allocation_pool(0, pool.as_ref(), size, min, max),
        None => query.add_allocation_pool(pool.as_ref(), size, min, max),
    }
}

/// Offers the allocator of page-locked memory itself, for producers that make their own pool, and for those that take
/// the offered pool but set the allocator that was offered first.
fn offer_memory(query: &mut Allocation, pinned: &PinnedAllocator) {
    let first = query.allocation_params().next().map(|(allocator, params)| (allocator.is_some(), params));
    match first {
        Some((true, _)) => {}
        Some((false, params)) => query.set_nth_allocation_param(0, Some(pinned), params),
        None => query.add_allocation_param(Some(pinned), gst::AllocationParams::default()),
    }
}

fn new_pool(
    pinned: &PinnedAllocator,
    caps: &gst::Caps,
    size: u32,
    min: u32,
    max: u32,
    with_meta: bool,
) -> Option<gst::BufferPool> {
    let pool = VideoBufferPool::new();
    let mut config = pool.config();
    config.set_params(Some(caps), size, min, max);
    config.set_allocator(Some(pinned), None);
    if with_meta {
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
    }
    pool.set_config(config).ok()?;
    Some(pool.upcast())
}
