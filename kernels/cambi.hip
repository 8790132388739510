// SPDX-License-Identifier: MPL-2.0
//
// CAMBI: flat areas of the luma, five scales filtered by modes, contrast values, and the sum of the largest.
//
// Estimated cost at 1080p with the models' options (scale 0 is 960x540, window 17): 2 MB read and 1 MB
// written for the flat areas, 3 MB for the scales, 1.4 MB read and 2.8 MB written for the contrast values; about 90
// instructions per luma sample, 60 per filtered and, mostly in counting, 150 per contrast value.
#include "frame.h"

#define CAMBI_SCALES 5
#define CAMBI_MAX_STEPS 32
#define CAMBI_RECIPROCALS 4226
// Marks a sample outside of flat areas: it becomes larger than any sample inside.
#define CAMBI_UNEVEN 0x4000u

struct CambiScale {
  int32_t width, height;
  uint32_t stride;   // samples from row to row
  uint32_t samples;  // first sample
  uint32_t values;   // first contrast value: a multiple of 4; width * height follow without gaps
  uint32_t top;      // how many of the largest values count
  uint32_t block;    // first block of cambi_contrast
  uint32_t tiles;    // tiles beside each other
};
HV_SIZE(CambiScale, 32);
HV_OFFSET(CambiScale, width, 0);
HV_OFFSET(CambiScale, height, 4);
HV_OFFSET(CambiScale, stride, 8);
HV_OFFSET(CambiScale, samples, 12);
HV_OFFSET(CambiScale, values, 16);
HV_OFFSET(CambiScale, top, 20);
HV_OFFSET(CambiScale, block, 24);
HV_OFFSET(CambiScale, tiles, 28);
struct CambiStep {
  int32_t above, up_to;  // codes for which it counts: above the first, up to the second
  int32_t weight;
};
HV_SIZE(CambiStep, 12);
HV_OFFSET(CambiStep, above, 0);
HV_OFFSET(CambiStep, up_to, 4);
HV_OFFSET(CambiStep, weight, 8);
// The shape of the work for one picture. It is in device memory.
struct CambiShape {
  CambiScale scale[CAMBI_SCALES];
  CambiStep step[CAMBI_MAX_STEPS];
  int32_t steps;        // how many
  int32_t first, last;  // codes that can have a contrast value
  int32_t radius;       // of the window
  int32_t rows;         // of a tile
  float reciprocal[CAMBI_RECIPROCALS];
};
HV_SIZE(CambiShape, 17468);
HV_OFFSET(CambiShape, scale, 0);
HV_OFFSET(CambiShape, step, 160);
HV_OFFSET(CambiShape, steps, 544);
HV_OFFSET(CambiShape, first, 548);
HV_OFFSET(CambiShape, last, 552);
HV_OFFSET(CambiShape, radius, 556);
HV_OFFSET(CambiShape, rows, 560);
HV_OFFSET(CambiShape, reciprocal, 564);

// ---- flat areas ----------------------------------------------------------------------------
#define FLAT_THREADS 256
#define FLAT_W 128  // samples of a tile
#define FLAT_H 16
#define FLAT_WORDS (FLAT_W / 4 + 2)  // of flat pixels, from 4 columns to the left to 4 to the right

struct CambiFlat {
  int32_t width, height;     // of the picture
  uint32_t bits;
  uint32_t distorted;    // 0: the reference
  uint32_t anti_dither;  // take the mean of four samples
  uint32_t halved;       // only even columns and rows go on
  uint32_t limit;        // more flat pixels in 7x7 make a flat area
  uint32_t stride;       // of the output
};
HV_SIZE(CambiFlat, 32);
HV_OFFSET(CambiFlat, width, 0);
HV_OFFSET(CambiFlat, height, 4);
HV_OFFSET(CambiFlat, bits, 8);
HV_OFFSET(CambiFlat, distorted, 12);
HV_OFFSET(CambiFlat, anti_dither, 16);
HV_OFFSET(CambiFlat, halved, 20);
HV_OFFSET(CambiFlat, limit, 24);
HV_OFFSET(CambiFlat, stride, 28);

namespace cambi {

// The luma sample (x, y), or the nearest one inside, with 10 bits. `picks`: width columns and height rows to use, or
// null.
template <class T>
HV_DEV uint32_t ten_bits(const HvPlane &luma, const CambiFlat &args, const uint32_t *picks, int x, int y) {
  x = hv_min(hv_max(x, 0), args.width - 1), y = hv_min(hv_max(y, 0), args.height - 1);
  if (picks) x = (int)hv_ldg(picks + x), y = (int)hv_ldg(picks + args.width + y);
  const uint8_t *row = luma.data + (uint64_t)y * luma.stride;
  const uint32_t sample = hv_sample<T>(row + (uint32_t)x * luma.step * sizeof(T), luma.shift, args.bits);
  return args.bits <= 10 ? sample << (10 - args.bits) : (sample + (1u << (args.bits - 11))) >> (args.bits - 10);
}

template <class T>
HV_DEV void flat(const HvFrame *__restrict__ frame, CambiFlat args, const uint32_t *__restrict__ picks,
                 uint16_t *__restrict__ out) {
  // Samples from 4 columns and 3 rows before the tile, then flat pixels and their sums over 7 rows.
  const int W = FLAT_W + 10, H = FLAT_H + 8;
  __shared__ uint16_t samples[H * W], means[(H - 1) * W];
  __shared__ uint32_t flats[(FLAT_H + 6) * FLAT_WORDS], columns[FLAT_H * FLAT_WORDS];
  const HvPlane luma = args.distorted ? frame->distorted[0] : frame->reference[0];
  const int x0 = (int)blockIdx.x * FLAT_W, y0 = (int)blockIdx.y * FLAT_H, tid = (int)threadIdx.x;
  for (int i = tid; i < H * W; i += FLAT_THREADS)
    samples[i] = (uint16_t)ten_bits<T>(luma, args, picks, x0 - 4 + i % W, y0 - 3 + i / W);
  __syncthreads();
  for (int i = tid; i < (H - 1) * W; i += FLAT_THREADS) {
    const uint32_t here = samples[i];
    if (!args.anti_dither) means[i] = (uint16_t)here;
    else if (i % W < W - 1) means[i] = (uint16_t)((here + samples[i + 1] + samples[i + W] + samples[i + W + 1]) >> 2);
  }
  __syncthreads();
  for (int i = tid; i < (FLAT_H + 6) * FLAT_WORDS; i += FLAT_THREADS) {
    const int row = i / FLAT_WORDS, x = x0 - 4 + i % FLAT_WORDS * 4, y = y0 - 3 + row;
    const uint16_t *at = means + row * W + i % FLAT_WORDS * 4;
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const bool inside = x + k >= 0 && x + k < args.width && y >= 0 && y < args.height;
      word |= inside && at[k] == at[k + 1] && at[k] == at[k + W] ? 1u << 8 * k : 0;
    }
    flats[i] = word;
  }
  __syncthreads();
  for (int i = tid; i < FLAT_H * FLAT_WORDS; i += FLAT_THREADS) {
    uint32_t sum = 0;
#pragma unroll
    for (int k = 0; k < 7; k++) sum += flats[i + k * FLAT_WORDS];
    columns[i] = sum;
  }
  __syncthreads();
  const int step = args.halved ? 2 : 1, across = FLAT_W / step;
  for (int i = tid; i < across * (FLAT_H / step); i += FLAT_THREADS) {
    const int dx = i % across * step, dy = i / across * step;
    if (x0 + dx >= args.width || y0 + dy >= args.height) continue;
    // Columns dx - 3 to dx + 3 are bytes dx + 1 to dx + 7 of the row.
    const uint8_t *row = (const uint8_t *)(columns + dy * FLAT_WORDS) + dx + 1;
    uint32_t count = 0;
#pragma unroll
    for (int k = 0; k < 7; k++) count += row[k];
    const uint32_t sample = means[(dy + 3) * W + dx + 4] | (count > args.limit ? 0 : CAMBI_UNEVEN);
    out[(uint64_t)((y0 + dy) / step) * args.stride + (uint32_t)((x0 + dx) / step)] = (uint16_t)sample;
  }
}

// ---- scales --------------------------------------------------------------------------------
// The value that occurs at least twice, or else the smallest.
HV_DEV uint32_t mode(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t low = hv_min(hv_min(a, b), c);
  return a == b || a == c ? a : b == c ? b : low;
}

// ---- contrast values -----------------------------------------------------------------------
#define CONTRAST_THREADS 128
#define CONTRAST_BINS 224

// A contrast value above 0, which is at least 0.5, in units of 2^-24.
HV_DEV uint64_t fixed(uint32_t bits) { return (uint64_t)((bits & 0x7fffffu) | 0x800000u) << ((bits >> 23) - 126); }

// Each thread has one column of the picture; a block has the 128 columns that the windows of a tile reach. It counts,
// in bytes, the samples of its column in the rows of the window. The first 128 - 2 * radius threads have a pixel of the
// tile in each row and add the bytes of the columns of its window, four at a time. Codes that do not fit the bins take
// further passes.
template <int WORDS>
HV_DEV void contrast(const CambiShape *__restrict__ shape, const uint16_t *__restrict__ samples,
                     uint32_t *__restrict__ values, uint64_t *sums) {
  __shared__ uint32_t histogram[CONTRAST_BINS * CONTRAST_THREADS / 4 + WORDS];
  __shared__ int32_t lows[HV_MAX_WAVES_PER_BLOCK(CONTRAST_THREADS)], highs[HV_MAX_WAVES_PER_BLOCK(CONTRAST_THREADS)];
  int s = 0;
  while (s + 1 < CAMBI_SCALES && blockIdx.x >= shape->scale[s + 1].block) s++;
  const CambiScale scale = shape->scale[s];
  const int radius = shape->radius, steps = shape->steps, first = shape->first, last = shape->last;
  const int tid = (int)threadIdx.x, tile_width = CONTRAST_THREADS - 2 * radius;
  const int tile = (int)(blockIdx.x - scale.block), x0 = tile % (int)scale.tiles * tile_width;
  const int y0 = tile / (int)scale.tiles * shape->rows, y1 = hv_min(y0 + shape->rows, scale.height);
  const int column = x0 - radius + tid, x = x0 + tid;
  const bool counts = column >= 0 && column < scale.width, mine = tid < tile_width && x < scale.width;
  samples += scale.samples, values += scale.values;
  const auto sample = [&](bool wanted, int x, int y) {
    wanted = wanted && y >= 0 && y < scale.height;
    return wanted ? (int)hv_ldg(samples + (uint64_t)(uint32_t)y * scale.stride + (uint32_t)x) : (int)CAMBI_UNEVEN;
  };

  // Codes of the tile that can have a contrast value.
  int low = (int)CAMBI_UNEVEN, high = -1;
  for (int y = y0; y < y1; y++) {
    const int code = sample(mine, x, y);
    if (code >= first && code <= last) low = hv_min(low, code), high = hv_max(high, code);
  }
  for (uint32_t m = HV_WAVE / 2; m; m >>= 1) {
    low = hv_min(low, (int)hv_shfl_xor_u32((uint32_t)low, m));
    high = hv_max(high, (int)hv_shfl_xor_u32((uint32_t)high, m));
  }
  if (hv_lane() == 0) lows[tid / HV_WAVE] = low, highs[tid / HV_WAVE] = high;
  __syncthreads();
  for (int i = 0; i < CONTRAST_THREADS / HV_WAVE; i++) low = hv_min(low, lows[i]), high = hv_max(high, highs[i]);

  if (high < 0) {
    for (int y = y0; y < y1; y++)
      if (mine) values[(uint32_t)y * (uint32_t)scale.width + (uint32_t)x] = 0;
    return;
  }

  uint32_t of_window[WORDS];  // 1 for each byte that is in the window of the thread's pixel
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    of_window[i] = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int at = 4 * i + k - tid % 4;
      if (at >= 0 && at <= 2 * radius) of_window[i] |= 1u << 8 * k;
    }
  }
  const auto count = [&](int bin) {
    const uint32_t *words = histogram + bin * (CONTRAST_THREADS / 4) + tid / 4;
    uint32_t n = 0;
#pragma unroll
    for (int i = 0; i < WORDS; i++) n = hv_udot4(words[i], of_window[i], n);
    return (int)n;
  };

  uint64_t total = 0, nonzero = 0;
  const int own = CONTRAST_BINS - 2 * steps;  // codes of a pass, whose bins have all others that they need beside them
  int base = low;
  do {
    const auto change = [&](int code, int by) {
      const uint32_t bin = (uint32_t)(code - base + steps);
      if (bin < CONTRAST_BINS) {
        uint8_t *at = (uint8_t *)histogram + bin * CONTRAST_THREADS + (uint32_t)tid;
        *at = (uint8_t)(*at + by);
      }
    };
    __syncthreads();
    for (int i = tid; i < CONTRAST_BINS * CONTRAST_THREADS / 4 + WORDS; i += CONTRAST_THREADS) histogram[i] = 0;
    __syncthreads();
    for (int y = y0 - radius; y < y0 + radius; y++) change(sample(counts, column, y), 1);
    int enters = sample(counts, column, y0 + radius), leaves = (int)CAMBI_UNEVEN, code = sample(mine, x, y0);
    for (int y = y0; y < y1; y++) {
      change(enters, 1);
      change(leaves, -1);
      __syncthreads();
      const int here = code;
      // Loads the inputs of the next row meanwhile.
      enters = sample(counts, column, y + 1 + radius);
      leaves = sample(counts, column, y - radius);
      code = sample(mine && y + 1 < y1, x, y + 1);
      const bool now = here >= base && here < base + own && here <= last;
      float best = 0;
      if (now) {
        const int bin = here - base + steps, n = count(bin);
        for (int d = 1; d <= steps; d++) {
          const CambiStep step = shape->step[d - 1];
          if (here <= step.above || here > step.up_to) continue;
          const int m = hv_max(count(bin + d), count(bin - d));
          best = hv_max(best, (float)(step.weight * n * m) * shape->reciprocal[n + m]);
        }
      }
      uint32_t bits;
      __builtin_memcpy(&bits, &best, 4);
      if (now || (mine && base == low)) values[(uint32_t)y * (uint32_t)scale.width + (uint32_t)x] = bits;
      if (bits) total += fixed(bits), nonzero++;
      __syncthreads();
    }
    base += own;
  } while (base <= high);
  hv_block_add_u64<CONTRAST_THREADS>(sums + 3 * s, total);
  __syncthreads();
  hv_block_add_u64<CONTRAST_THREADS>(sums + 3 * s + 1, nonzero);
}

// ---- the largest values ---------------------------------------------------------------------
#define TOP_THREADS 1024
#define TOP_BINS 2048
#define TOP_LEAST 0x3f000000u  // 0.5, below which there are no values but 0

// The digit of the value of rank `rank` from the top, given the number of values with each digit. `rank` becomes the
// rank among the values with that digit.
HV_DEV uint32_t digit_of(uint32_t *counts, uint32_t *above, uint32_t *found, uint32_t &rank) {
  const uint32_t tid = threadIdx.x, mine = counts[2 * tid] + counts[2 * tid + 1];
  above[tid] = mine;
  __syncthreads();
  // Sums over all threads from this one on.
  for (uint32_t distance = 1; distance < TOP_THREADS; distance *= 2) {
    const uint32_t sum = above[tid] + (tid + distance < TOP_THREADS ? above[tid + distance] : 0);
    __syncthreads();
    above[tid] = sum;
    __syncthreads();
  }
  const uint32_t others = above[tid] - mine;
  if (others < rank && rank <= others + mine) {
    const bool upper = rank - others <= counts[2 * tid + 1];
    found[0] = 2 * tid + upper;
    found[1] = rank - others - (upper ? 0 : counts[2 * tid + 1]);
  }
  __syncthreads();
  rank = found[1];
  return found[0];
}

}  // namespace cambi

// The 10-bit samples of a picture at its size, or of every second column and row, marked unless they are in flat areas.
// Block 256 threads, a tile of 128 x 16 samples; grid (ceil(width/128), ceil(height/16)).
#define CAMBI_FLAT(name, T)                                                                                  \
  HV_KERNEL(FLAT_THREADS, name)(const HvFrame *__restrict__ frame, CambiFlat args,                           \
                                const uint32_t *__restrict__ picks, uint16_t *__restrict__ out) {            \
    cambi::flat<T>(frame, args, picks, out);                                                                 \
  }                                                                                                          \
  HV_EXPORT(name)

CAMBI_FLAT(cambi_flat_u8, uint8_t)
CAMBI_FLAT(cambi_flat_u16, uint16_t)

#define MODE_THREADS 128

// The mode filter on width x height samples of `in`, every `step`-th column and row of it: first horizontal, then
// vertical. The first and last row are not filtered, the outer columns only vertically. Block 128 threads; grid
// (ceil(width/128), height).
HV_KERNEL(MODE_THREADS, cambi_mode)(const uint16_t *__restrict__ in, uint32_t in_stride, uint32_t step, int width,
                                    int height, uint16_t *__restrict__ out, uint32_t stride) {
  const int x = (int)(blockIdx.x * MODE_THREADS + threadIdx.x), y = (int)blockIdx.y;
  if (x >= width) return;
  const auto sample = [&](int x, int y) -> uint32_t {
    return hv_ldg(in + (uint64_t)((uint32_t)y * step) * in_stride + (uint32_t)x * step);
  };
  const auto across = [&](int y) {
    const uint32_t here = sample(x, y) & ~CAMBI_UNEVEN;
    if (x == 0 || x == width - 1) return here;
    return cambi::mode(sample(x - 1, y) & ~CAMBI_UNEVEN, here, sample(x + 1, y) & ~CAMBI_UNEVEN);
  };
  uint32_t result = sample(x, y);
  if (y > 0 && y < height - 1) result = (result & CAMBI_UNEVEN) | cambi::mode(across(y - 1), across(y), across(y + 1));
  out[(uint64_t)(uint32_t)y * stride + (uint32_t)x] = (uint16_t)result;
}
HV_EXPORT(cambi_mode)

// The contrast values of all scales, as binary32. Adds to the three sums of each scale: the sum of its values in units
// of 2^-24, and the number of values that are not 0. Block 128 threads, a tile of 128 - 2 * radius columns; grid: one
// block for each tile of all scales. WORDS is the number of words that a window reaches: at least (2 * radius + 4) / 4
// + 1.
#define CAMBI_CONTRAST(name, WORDS)                                                                             \
  HV_KERNEL(CONTRAST_THREADS, name)(const CambiShape *__restrict__ shape, const uint16_t *__restrict__ samples, \
                                    uint32_t *__restrict__ values, uint64_t *sums) {                            \
    cambi::contrast<WORDS>(shape, samples, values, sums);                                                       \
  }                                                                                                             \
  HV_EXPORT(name)

CAMBI_CONTRAST(cambi_contrast5, 5)
CAMBI_CONTRAST(cambi_contrast9, 9)
CAMBI_CONTRAST(cambi_contrast17, 17)

// If more values than count are not 0, adds the sum of the largest to the scale's third sum. Block 1024 threads, grid
// 5.
HV_KERNEL(TOP_THREADS, cambi_top)(const CambiShape *__restrict__ shape, const uint32_t *__restrict__ values,
                                  uint64_t *sums) {
  __shared__ uint32_t counts[TOP_BINS], above[TOP_THREADS], found[2];
  const CambiScale scale = shape->scale[blockIdx.x];
  uint64_t *sum = sums + 3 * blockIdx.x;
  uint32_t rank = scale.top;
  if (sum[1] <= rank) return;
  const HvU32x4 *all = (const HvU32x4 *)(values + scale.values);
  const uint32_t quads = ((uint32_t)scale.width * (uint32_t)scale.height + 3) / 4;  // words after the last value are 0
  uint32_t known = 0;
#pragma unroll
  for (int shift = 16; shift >= 0; shift -= 8) {  // 11 bits, then twice 8
    const int bits = shift == 16 ? 11 : 8;
    for (uint32_t i = threadIdx.x; i < TOP_BINS; i += TOP_THREADS) counts[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < quads; i += TOP_THREADS) {
      const HvU32x4 quad = hv_ldg(all + i);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const uint32_t key = quad.v[k] - TOP_LEAST;
        const uint32_t digit = key >> shift & ((1u << bits) - 1);
        if (quad.v[k] && key >> (shift + bits) == known) hv_atomic_add_u32(counts + digit, 1);
      }
    }
    __syncthreads();
    known = known << bits | cambi::digit_of(counts, above, found, rank);
    __syncthreads();
  }
  uint64_t largest = 0;
  for (uint32_t i = threadIdx.x; i < quads; i += TOP_THREADS) {
    const HvU32x4 quad = hv_ldg(all + i);
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (quad.v[k] > known + TOP_LEAST) largest += cambi::fixed(quad.v[k]);
  }
  if (threadIdx.x == 0) largest += rank * cambi::fixed(known + TOP_LEAST);
  hv_block_add_u64<TOP_THREADS>(sum + 2, largest);
}
HV_EXPORT(cambi_top)
