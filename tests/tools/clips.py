# SPDX-License-Identifier: MPL-2.0
"""Small synthetic clip pairs, made from formulas alone.

`tests/pipeline/common/clip.rs` holds the same formulas; the checksums in `tests/data/golden.json` show when
the two drift apart. All arithmetic is on integers in a 16-bit range that is cut to the depth of the
clip at the end, so every depth shows the same picture.
"""
import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clip:
    """A reference and a distorted video of `frames` frames, planar YUV.

    chroma: "420", "422" or "444"; a subsampled axis of n luma samples has ceil(n / 2) chroma
    samples, as in files and GStreamer buffers. banded: the upper half is a slow ramp, dithered in the reference
    and in bands in the distorted video.
    """

    width: int
    height: int
    depth: int
    chroma: str
    frames: int
    banded: bool = False

    @property
    def name(self):
        return f"{self.width}x{self.height}_{self.chroma}_{self.depth}bit"

    @property
    def pix_fmt(self):
        """The format's name in ffmpeg."""
        return f"yuv{self.chroma}p" + (f"{self.depth}le" if self.depth > 8 else "")

    def planes(self, index, distorted):
        """The Y, Cb and Cr samples of a frame, as 2-D integer arrays."""
        half_w, half_h = self.chroma != "444", self.chroma == "420"
        small = ((self.height + half_h) >> half_h, (self.width + half_w) >> half_w)
        out = []
        for plane, size in enumerate([(self.height, self.width), small, small]):
            sample = _reference(plane, index, *size)
            if distorted:
                sample = _distort(sample, index)
            if self.banded:
                ramp = _ramp(plane, index, size[0] // 2, size[1], dithered=not distorted)
                sample[:len(ramp)] = ramp
            out.append(sample >> (16 - self.depth))
        return out

    def frame_bytes(self, index, distorted):
        """A frame as it lies in a raw video file: the three planes without padding, little endian."""
        kind = "<u2" if self.depth > 8 else "u1"
        return b"".join(p.astype(kind).tobytes() for p in self.planes(index, distorted))

    def crc32(self, distorted):
        """CRC-32 (as in zlib) of all frames, one after the other."""
        crc = 0
        for index in range(self.frames):
            crc = zlib.crc32(self.frame_bytes(index, distorted), crc)
        return crc

    def write(self, path, distorted):
        """Writes the raw video file."""
        with open(path, "wb") as f:
            for index in range(self.frames):
                f.write(self.frame_bytes(index, distorted))


# An odd size, a size whose wavelet bands are odd too, and every depth class of the plugin.
CLIPS = [
    Clip(176, 144, 8, "420", 10),
    Clip(97, 71, 8, "420", 6),
    Clip(176, 144, 10, "420", 6),
    Clip(97, 71, 10, "422", 6),
    Clip(96, 64, 12, "420", 6),
    Clip(97, 71, 12, "444", 6),
    Clip(96, 64, 16, "444", 6),
    # Large enough for the five scales of MS-SSIM.
    Clip(189, 177, 8, "420", 2),
    # Large enough for the v1 models.
    Clip(232, 168, 8, "444", 6, banded=True),
    Clip(324, 324, 10, "444", 3, banded=True),
    Clip(336, 322, 8, "420", 3, banded=True),
]


def _noise(x, y, seed):
    """A 32-bit hash of a position: multiplications and shifts modulo 2^32."""
    h = (x * 0x9E3779B1 ^ y * 0x85EBCA77 ^ seed * 0xC2B2AE3D) & 0xFFFFFFFF
    h = (h ^ h >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    h = (h ^ h >> 12) * 0x297A2D39 & 0xFFFFFFFF
    return h ^ h >> 15


def _reference(plane, t, height, width):
    """A drifting gradient, blocks and grain that move along, noise that does not, two saturated boxes."""
    y, x = np.mgrid[0:height, 0:width].astype(np.uint64)
    moved = x + t // 2
    ramp = (2 * x + y + 3 * t) % 256
    gradient = np.minimum(ramp, 255 - ramp) * 160
    blocks = _noise(moved >> 2, y >> 2, 1 + plane) & 0x1FFF
    grain = _noise(moved, y, 4 + plane) & 0x0FFF
    noise = _noise(x, y, 7 + 3 * t + plane) & 0x1FF
    v = 12288 + gradient + blocks + grain + noise
    row = (y >= height // 4) & (y < height // 3)
    v[row & ((x + t) % 64 < 10)] = 0
    v[row & ((x + 64 - t) % 64 >= 54)] = 65535
    return v.astype(np.int64)


def _ramp(plane, t, height, width, dithered):
    """Rises by a 256th of the range every 24 columns."""
    y, x = np.mgrid[0:height, 0:width].astype(np.uint64)
    noise = _noise(x, y, 10 + 3 * t + plane) & 0x1FF if dithered else 0
    return (16384 + (x + y // 4 + t) // 24 * 256 + noise).astype(np.int64)


def _distort(v, t):
    """Blur on the left, sharpening on the right, and a quantiser whose step follows the frame number."""
    width = v.shape[1]
    padded = np.pad(v, [(0, 0), (3, 3)], mode="edge")
    blur = sum(padded[:, k:k + width] for k in range(7)) // 7
    sharp = v + ((v - blur) >> 2)
    d = np.where(np.arange(width) < width * 2 // 3, blur, sharp)
    step = 2048 << (t % 3)
    return np.clip((d + step // 2) // step * step, 0, 65535)
