// SPDX-License-Identifier: MPL-2.0

//! Scores pictures with the crates `fast-ssim2` and `ssimulacra2`. Standard input has pairs of pictures, the reference first:
//! linear R, G and B of each sample, as `f32` in little endian. Prints both scores of each pair in a line.

use std::error::Error;
use std::io::{BufRead, Read, stdin};

use fast_ssim2::{PixelBuffer, PixelDescriptor, compute_ssimulacra2};
use ssimulacra2::{LinearRgb, compute_frame_ssimulacra2};

fn fast(pictures: &[Vec<u8>; 2], width: u32, height: u32) -> Result<f64, Box<dyn Error>> {
    let buffer = |picture: &Vec<u8>| {
        PixelBuffer::from_vec(picture.clone(), width, height, PixelDescriptor::RGBF32_LINEAR)
            .map_err(|err| format!("{err:?}"))
    };
    let (reference, distorted) = (buffer(&pictures[0])?, buffer(&pictures[1])?);
    Ok(compute_ssimulacra2(&reference.as_slice().erase(), &distorted.as_slice().erase())?)
}

fn plain(pictures: &[Vec<u8>; 2], width: usize, height: usize) -> Result<f64, Box<dyn Error>> {
    let linear = |picture: &Vec<u8>| {
        let samples =
            picture.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect::<Vec<_>>();
        LinearRgb::new(samples.as_chunks::<3>().0.to_vec(), width.try_into()?, height.try_into()?)
            .map_err(|err| Box::<dyn Error>::from(format!("{err:?}")))
    };
    Ok(compute_frame_ssimulacra2(linear(&pictures[0])?, linear(&pictures[1])?)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let sides = std::env::args().skip(1).map(|side| side.parse()).collect::<Result<Vec<u32>, _>>()?;
    let &[width, height] = sides.as_slice() else {
        return Err("usage: ssimulacra2-crates WIDTH HEIGHT".into());
    };
    let bytes = width as usize * height as usize * 12;
    let mut pictures = [vec![0; bytes], vec![0; bytes]];
    let mut input = stdin().lock();
    while !input.fill_buf()?.is_empty() {
        for picture in &mut pictures {
            input.read_exact(picture)?;
        }
        println!(
            "{} {}",
            fast(&pictures, width, height)?,
            plain(&pictures, width as usize, height as usize)?
        );
    }
    Ok(())
}
