// Label-smoothed cross entropy of a block of rows of logits. Logits are read twice, the second time
// from the cache.
#pragma once

#include "common.cuh"

namespace {

// Calls `visit` for all elements of a row, with the index of the first of N neighbouring elements,
// and their values. If `is_written`, the values that `visit` leaves are written back. A row may
// begin at any address.
template <bool is_written, typename T, typename F>
__device__ void across(T *row, uint32_t width, F visit) {
    auto visit_some = [&](uint32_t i, auto &values) {
        load(row + i, values);
        visit(i, values);
        if constexpr (is_written) store(row + i, values);
    };
    uint32_t ahead = -reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T);
    ahead = min(ahead, width);
    uint32_t pieces = (width - ahead) / LANES<T>, behind = ahead + pieces * LANES<T>;
    for (uint32_t piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        float values[LANES<T>];
        visit_some(ahead + piece * LANES<T>, values);
    }
    // The elements before and after the aligned pieces are fewer than in two pieces, so there is at
    // least one thread for each of them.
    uint32_t i = threadIdx.x < ahead ? threadIdx.x : behind + threadIdx.x - ahead;
    if (i < width) {
        float values[1];
        visit_some(i, values);
    }
}

// Computes four numbers for each row, with one block of threads for each row: the loss, the
// negative log-likelihood, 1 if the prediction is correct (otherwise 0), and 0. The prediction is
// the first class with the largest logit. If `has_gradient`, then replaces the logits with the
// gradient of scale · loss.
//
// The sum of exponentials is relative to the largest logit so far (Milakov and Gimelshein 2018).
template <typename T>
__device__ void cross_entropy(T *logits, const uint32_t *targets, float *sums, uint32_t width,
                              float smoothing, float scale, uint32_t has_gradient) {
    const float to_base_2 = 1.4426950408889634f, to_base_e = 0.6931471805599453f;
    T *row = logits + blockIdx.x * (uint64_t)width;
    uint32_t target = targets[blockIdx.x];
    float of_target = wide(row[target]);
    // A target logit that is NaN is never the prediction.
    float before = of_target == of_target ? 0.0f : 1.0f;
    float most = -INFINITY, exponentials = 0.0f, all = 0.0f;
    across<false>(row, width, [&](uint32_t i, auto &x) {
        constexpr uint32_t N = sizeof x / sizeof *x;
        float most_here = x[0];
        for (uint32_t lane = 1; lane < N; lane++) most_here = fmaxf(most_here, x[lane]);
        if (most_here > most) {
            exponentials *= exp2f((most - most_here) * to_base_2);
            most = most_here;
        }
        for (uint32_t lane = 0; lane < N; lane++) {
            exponentials += exp2f((x[lane] - most) * to_base_2);
            all += x[lane];
            if (x[lane] > of_target || (x[lane] == of_target && i + lane < target)) before = 1.0f;
        }
    });
    float largest = block_max(most);
    float total = block_sum(exponentials * exp2f((most - largest) * to_base_2));
    float normalizer = largest + log2f(total) * to_base_e;
    float uniform = smoothing / width;
    all = block_sum(all);
    before = block_max(before);
    if (threadIdx.x == 0) {
        float nll = normalizer - of_target;
        float *of_row = sums + 4ull * blockIdx.x;
        // Without smoothing, a class with the logit -inf must not make the loss NaN.
        of_row[0] = smoothing == 0.0f
            ? nll : (1.0f - smoothing) * nll + smoothing * (normalizer - all / width);
        of_row[1] = nll;
        of_row[2] = before == 0.0f ? 1.0f : 0.0f;
        of_row[3] = 0.0f;
    }
    if (!has_gradient) return;
    across<true>(row, width, [&](uint32_t i, auto &x) {
        constexpr uint32_t N = sizeof x / sizeof *x;
        for (uint32_t lane = 0; lane < N; lane++) {
            float of_class = exp2f((x[lane] - normalizer) * to_base_2) - uniform;
            x[lane] = scale * (i + lane == target ? of_class - (1.0f - smoothing) : of_class);
        }
    });
}

}  // namespace
