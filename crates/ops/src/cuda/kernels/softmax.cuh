// Attention weights and their gradient, with one warp for each query of a head.
#pragma once

#include "common.cuh"

namespace {

// Shape of the scores and of their mask.
struct Scores {
    uint32_t heads, mask_heads, queries, keys;

    // Returns the row of the mask, (sequence, head of the mask, query), for a row of the scores,
    // (sequence, head, query).
    __device__ uint64_t mask_row(uint64_t row) const {
        uint64_t query = row % queries, head = row / queries % heads;
        uint64_t sequence = row / queries / heads;
        return (sequence * mask_heads + (mask_heads == 1 ? 0 : head)) * queries + query;
    }

    // Returns the index in the dropout mask of a row's first weight. In this mask, queries are
    // packed: there are no elements for padding.
    __device__ uint64_t drawn(uint64_t row, const uint32_t *starts) const {
        uint64_t query = row % queries, head = row / queries % heads;
        uint64_t sequence = row / queries / heads;
        return ((starts[sequence] + query) * heads + head) * keys;
    }
};

// Returns the largest score of a row, and the sum of the exponentials of all scores relative to it.
// One warp processes a row.
template <typename T>
__device__ float2 normalizer(const T *scores, const float *mask, uint32_t keys) {
    float most = -INFINITY, sum = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < keys; i += 32)
        most = fmaxf(most, wide(scores[i]) + mask[i]);
    most = warp_max(most);
    for (uint32_t i = threadIdx.x & 31; i < keys; i += 32)
        sum += expf(wide(scores[i]) + mask[i] - most);
    return make_float2(most, warp_sum(sum));
}

// Computes the attention weights, after dropout.
template <typename T>
__device__ void softmax(const T *scores, const float *mask, const uint32_t *starts, T *out,
                        uint64_t rows, Scores shape, Dropout dropout) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    scores += row * shape.keys;
    out += row * shape.keys;
    mask += shape.mask_row(row) * shape.keys;
    uint64_t drawn = shape.drawn(row, starts);
    float2 found = normalizer(scores, mask, shape.keys);
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        round_to(out[i], weight * dropout.factor(drawn + i));
    }
}

template <typename T>
__device__ void softmax_back(const T *scores, const float *mask, const uint32_t *starts,
                             const T *gradient, T *out, uint64_t rows, Scores shape,
                             Dropout dropout) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    scores += row * shape.keys;
    gradient += row * shape.keys;
    out += row * shape.keys;
    mask += shape.mask_row(row) * shape.keys;
    uint64_t drawn = shape.drawn(row, starts);
    float2 found = normalizer(scores, mask, shape.keys);
    float along = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        along += weight * wide(gradient[i]) * dropout.factor(drawn + i);
    }
    along = warp_sum(along);
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        round_to(out[i], weight * (wide(gradient[i]) * dropout.factor(drawn + i) - along));
    }
}

}  // namespace
