// Epilogue of a linear layer, which follows the matrix product: bias, activation, dropout,
// residual.
#pragma once

#include "common.cuh"

namespace {

// The same order as in Rust's `Activation`, whose values are passed as numbers.
enum Activation { IDENTITY, RELU, GELU, GELU_TANH, SWISH, QUICK_GELU, TANH };

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Returns the value of an activation, and its derivative.
__device__ float2 activated(int activation, float x) {
    const float twice_root = 1.5957691216057308f, cube = 0.044715f, quick = 1.702f;
    switch (activation) {
    case RELU: return x <= 0.0f ? make_float2(0.0f, 0.0f) : make_float2(x, x > 0.0f ? 1.0f : 0.0f);
    case GELU: {
        float twice = 1.0f + erff(x * 0.70710678118654752f);
        float density = expf(-0.5f * x * x) * 0.3989422804014327f;
        return make_float2(0.5f * x * twice, 0.5f * twice + x * density);
    }
    case GELU_TANH: {
        float part = sigmoid(twice_root * (x + cube * x * x * x));
        float slope = twice_root * (1.0f + 3.0f * cube * x * x);
        return make_float2(x * part, part * (1.0f + x * (1.0f - part) * slope));
    }
    case SWISH: {
        float part = sigmoid(x);
        return make_float2(x * part, part * (1.0f + x * (1.0f - part)));
    }
    case QUICK_GELU: {
        float part = sigmoid(quick * x);
        return make_float2(x * part, part * (1.0f + quick * x * (1.0f - part)));
    }
    case TANH: {
        float value = tanhf(x);
        return make_float2(value, 1.0f - value * value);
    }
    case IDENTITY: return make_float2(x, 1.0f);
    // An activation that is missing here must not be computed as another one.
    default: return make_float2(nanf(""), nanf(""));
    }
}

// Computes N elements of product + bias; `bias` is null if there is none.
template <uint32_t N, typename T>
__device__ void load_with_bias(const T *product, const float *bias, uint64_t i, uint32_t column,
                               float (&x)[N]) {
    load(product + i, x);
    if (!bias) return;
    float biases[N];
    load(bias + column, biases);
    for (uint32_t lane = 0; lane < N; lane++) x[lane] += biases[lane];
}

template <uint32_t N, typename T>
__device__ void epilogue_by(const T *product, const float *bias, const T *residual, T *out,
                            uint64_t count, uint32_t width, int activation, Dropout dropout) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        uint64_t row = i;
        float x[N], others[N] = {};
        load_with_bias(product, bias, i, take_digit(row, width), x);
        if (residual) load(residual + i, others);
        for (uint32_t lane = 0; lane < N; lane++)
            x[lane] = activated(activation, x[lane]).x * dropout.factor(i + lane) + others[lane];
        store(out + i, x);
    }
}

// Computes residual + dropout(activation(product + bias)); `bias` and `residual` are null if
// absent.
template <typename T>
__device__ void epilogue(const T *product, const float *bias, const T *residual, T *out,
                         uint64_t count, uint32_t width, int activation, Dropout dropout) {
    if (width % LANES<T> == 0 && are_aligned(product, bias, residual, out))
        epilogue_by<LANES<T>>(product, bias, residual, out, count, width, activation, dropout);
    else
        epilogue_by<1>(product, bias, residual, out, count, width, activation, dropout);
}

template <uint32_t N, typename T>
__device__ void epilogue_back_by(const T *product, const float *bias, const T *gradient, T *out,
                                 float *sums, uint64_t rows, uint32_t width, uint32_t rows_at_once,
                                 int activation, Dropout dropout) {
    uint64_t start = blockIdx.y * (uint64_t)rows_at_once;
    uint64_t end = min(start + rows_at_once, rows);
    for (uint32_t tile = blockIdx.x; tile * TILE * N < width; tile += gridDim.x) {
        uint32_t column = tile_column<N>(tile);
        float of_bias[N] = {};
        if (column < width) {
#pragma unroll 2
            for (uint64_t row = start + threadIdx.x / TILE; row < end; row += TILE) {
                uint64_t i = row * width + column;
                float x[N], gradients[N];
                load(gradient + i, gradients);
                if (activation != IDENTITY) load_with_bias(product, bias, i, column, x);
                for (uint32_t lane = 0; lane < N; lane++) {
                    if (activation != IDENTITY)
                        gradients[lane] *= activated(activation, x[lane]).y;
                    gradients[lane] *= dropout.factor(i + lane);
                    of_bias[lane] += gradients[lane];
                }
                if (out) store(out + i, gradients);
            }
        }
        if (sums) add_up(of_bias, sums, tile, width);
    }
}

// Computes the gradient with respect to the product, unless `out` is null. Unless `sums` is null,
// also sums the gradient with respect to the bias over each block of rows: (blocks of rows, width).
template <typename T>
__device__ void epilogue_back(const T *product, const float *bias, const T *gradient, T *out,
                              float *sums, uint64_t rows, uint32_t width, uint32_t rows_at_once,
                              int activation, Dropout dropout) {
    if (sums) sums += blockIdx.y * (uint64_t)width;
    if (width % LANES<T> == 0 && are_aligned(product, bias, gradient, out))
        epilogue_back_by<LANES<T>>(product, bias, gradient, out, sums, rows, width, rows_at_once,
                                   activation, dropout);
    else
        epilogue_back_by<1>(product, bias, gradient, out, sums, rows, width, rows_at_once,
                            activation, dropout);
}

}  // namespace
