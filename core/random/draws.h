// Uniform and normal numbers of a stream, many at a time. Thread-safe.
#pragma once
#include <cstdint>

#include "core/rng.h"

namespace frugal {

// to[i] = factor * normal(key, first + i) for i < count.
//
// The bits of normal() are a contract: they are equal for every CPU, every vector width and however
// a stream is divided. Words 0 and 1 of philox(key, index / 4) make the elements 4k and 4k + 1,
// words 2 and 3 make 4k + 2 and 4k + 3. Two words (a, b) make two numbers (Box-Muller):
//   u = f32(a >> 1 | 1) / 2^31, radius = sqrt(-2 log u), angle = 2 pi b / 2^32;
//   the first number is radius cos(angle), the second radius sin(angle).
// Logarithm, cosine and sine are the polynomials of draws.cpp in f32. Each product and each sum is
// rounded on its own (no fused products), and only IEEE operations are used. The error of a
// number is at most 1e-6 of the larger of 1 and the radius. The largest |z| is 6.55.
void draw_normal(RngKey key, uint64_t first, float factor, float* to, int64_t count);

// to[i] = bound * (2 * uniform(key, first + i) - 1) for i < count: uniform in [-bound, bound).
void draw_uniform(RngKey key, uint64_t first, float bound, float* to, int64_t count);

}  // namespace frugal
