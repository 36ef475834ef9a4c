// Layer normalisation, with one warp for each row.
#pragma once

#include "common.cuh"

namespace {

// Calls `visit` with the index of each piece of N neighbouring elements of a row that this thread
// of the warp processes.
template <uint32_t N, typename F>
__device__ void of_warp(uint32_t width, F visit) {
    for (uint32_t i = N * (threadIdx.x & 31); i < width; i += 32 * N) visit(i);
}

// Returns the mean of a row, and the reciprocal of its standard deviation.
template <uint32_t N, typename T>
__device__ float2 statistics(const T *row, uint32_t width, float epsilon) {
    float sum = 0.0f, squares = 0.0f, x[N];
    of_warp<N>(width, [&](uint32_t i) {
        load(row + i, x);
        for (uint32_t lane = 0; lane < N; lane++) sum += x[lane];
    });
    float mean = warp_sum(sum) / width;
    of_warp<N>(width, [&](uint32_t i) {
        load(row + i, x);
        for (uint32_t lane = 0; lane < N; lane++) squares += (x[lane] - mean) * (x[lane] - mean);
    });
    return make_float2(mean, 1.0f / sqrtf(warp_sum(squares) / width + epsilon));
}

template <uint32_t N, typename T>
__device__ void layer_norm_by(const T *x, const float *weight, const float *bias, T *out,
                              uint32_t width, float epsilon) {
    float2 found = statistics<N>(x, width, epsilon);
    float values[N], weights[N], biases[N];
    of_warp<N>(width, [&](uint32_t i) {
        load(x + i, values);
        load(weight + i, weights);
        load(bias + i, biases);
        for (uint32_t lane = 0; lane < N; lane++)
            values[lane] = (values[lane] - found.x) * found.y * weights[lane] + biases[lane];
        store(out + i, values);
    });
}

template <typename T>
__device__ void layer_norm(const T *x, const float *weight, const float *bias, T *out,
                           uint64_t rows, uint32_t width, float epsilon) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    x += row * width;
    out += row * width;
    if (width % LANES<T> == 0 && are_aligned(x, weight, bias, out))
        layer_norm_by<LANES<T>>(x, weight, bias, out, width, epsilon);
    else
        layer_norm_by<1>(x, weight, bias, out, width, epsilon);
}

template <uint32_t N, typename T>
__device__ float2 layer_norm_back_by(const T *x, const float *weight, const T *gradient, T *out,
                                     uint32_t width, float epsilon) {
    float2 found = statistics<N>(x, width, epsilon);
    float sum = 0.0f, along = 0.0f, values[N], weights[N], gradients[N];
    auto read = [&](uint32_t i) {
        load(x + i, values);
        load(weight + i, weights);
        load(gradient + i, gradients);
    };
    of_warp<N>(width, [&](uint32_t i) {
        read(i);
        for (uint32_t lane = 0; lane < N; lane++) {
            float weighted = gradients[lane] * weights[lane];
            sum += weighted;
            along += weighted * (values[lane] - found.x) * found.y;
        }
    });
    sum = warp_sum(sum) / width;
    along = warp_sum(along) / width;
    of_warp<N>(width, [&](uint32_t i) {
        read(i);
        for (uint32_t lane = 0; lane < N; lane++) {
            float normal = (values[lane] - found.x) * found.y;
            values[lane] = found.y * (gradients[lane] * weights[lane] - sum - normal * along);
        }
        store(out + i, values);
    });
    return found;
}

// Computes the gradient with respect to x, and for each row its mean and the reciprocal of its
// standard deviation.
template <typename T>
__device__ void layer_norm_back(const T *x, const float *weight, const T *gradient, T *out,
                                float *found_rows, uint64_t rows, uint32_t width, float epsilon) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    x += row * width;
    gradient += row * width;
    out += row * width;
    bool is_wide = width % LANES<T> == 0 && are_aligned(x, weight, gradient, out);
    float2 found = is_wide ? layer_norm_back_by<LANES<T>>(x, weight, gradient, out, width, epsilon)
                           : layer_norm_back_by<1>(x, weight, gradient, out, width, epsilon);
    if ((threadIdx.x & 31) == 0) {
        found_rows[2 * row] = found.x;
        found_rows[2 * row + 1] = found.y;
    }
}

template <uint32_t N, typename T>
__device__ void layer_norm_sums_by(const T *x, const T *gradient, const float *found_rows,
                                   float *out, uint64_t rows, uint32_t width,
                                   uint32_t rows_at_once) {
    uint64_t start = blockIdx.y * (uint64_t)rows_at_once;
    uint64_t end = min(start + rows_at_once, rows);
    for (uint32_t tile = blockIdx.x; tile * TILE * N < width; tile += gridDim.x) {
        uint32_t column = tile_column<N>(tile);
        float of_weight[N] = {}, of_bias[N] = {};
        if (column < width) {
#pragma unroll 2
            for (uint64_t row = start + threadIdx.x / TILE; row < end; row += TILE) {
                float values[N], gradients[N];
                load(x + row * width + column, values);
                load(gradient + row * width + column, gradients);
                float mean = found_rows[2 * row], factor = found_rows[2 * row + 1];
                for (uint32_t lane = 0; lane < N; lane++) {
                    of_bias[lane] += gradients[lane];
                    of_weight[lane] += gradients[lane] * (values[lane] - mean) * factor;
                }
            }
        }
        add_up(of_weight, out, tile, width);
        add_up(of_bias, out + width, tile, width);
    }
}

// Sums the gradients with respect to weight and bias over each block of rows: (blocks of rows, 2,
// width).
template <typename T>
__device__ void layer_norm_sums(const T *x, const T *gradient, const float *found_rows, float *out,
                                uint64_t rows, uint32_t width, uint32_t rows_at_once) {
    out += blockIdx.y * 2ull * width;
    if (width % LANES<T> == 0 && are_aligned(x, gradient))
        layer_norm_sums_by<LANES<T>>(x, gradient, found_rows, out, rows, width, rows_at_once);
    else
        layer_norm_sums_by<1>(x, gradient, found_rows, out, rows, width, rows_at_once);
}

}  // namespace
