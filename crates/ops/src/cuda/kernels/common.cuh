// What all kernels share: conversion of types, reading and writing several elements at once,
// dropout, and sums over rows.
#pragma once

#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

__device__ float wide(float x) { return x; }
__device__ float wide(__half x) { return __half2float(x); }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void round_to(float &to, float x) { to = x; }
__device__ void round_to(__half &to, float x) { to = __float2half_rn(x); }
__device__ void round_to(__nv_bfloat16 &to, float x) { to = __float2bfloat16_rn(x); }

__device__ uint64_t first() { return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; }
__device__ uint64_t stride() { return gridDim.x * (uint64_t)blockDim.x; }

// Number of elements of a type in 16 bytes, the most that a thread reads at once.
template <typename T>
constexpr uint32_t LANES = 16 / sizeof(T);

// Whether all pointers are multiples of 16, so that 16 bytes can be read and written at once. A
// null pointer counts as aligned, because it is never read.
template <typename... Pointers>
__device__ bool are_aligned(Pointers... pointers) {
    return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

// Reads N neighbouring elements as f32. If N is above 1, they fill whole pieces of 16 bytes, which
// must be aligned.
template <uint32_t N, typename T>
__device__ void load(const T *from, float (&to)[N]) {
    if constexpr (N == 1) {
        to[0] = wide(*from);
    } else {
        static_assert(N % LANES<T> == 0, "pieces of 16 bytes");
#pragma unroll
        for (uint32_t piece = 0; piece < N; piece += LANES<T>) {
            uint4 bytes = *reinterpret_cast<const uint4 *>(from + piece);
            T part[LANES<T>];
            memcpy(part, &bytes, sizeof bytes);
#pragma unroll
            for (uint32_t lane = 0; lane < LANES<T>; lane++) to[piece + lane] = wide(part[lane]);
        }
    }
}

// Writes N neighbouring elements, rounded to their type; the counterpart of `load`.
template <uint32_t N, typename T>
__device__ void store(T *to, const float (&from)[N]) {
    if constexpr (N == 1) {
        round_to(*to, from[0]);
    } else {
        static_assert(N % LANES<T> == 0, "pieces of 16 bytes");
#pragma unroll
        for (uint32_t piece = 0; piece < N; piece += LANES<T>) {
            T part[LANES<T>];
#pragma unroll
            for (uint32_t lane = 0; lane < LANES<T>; lane++)
                round_to(part[lane], from[piece + lane]);
            uint4 bytes;
            memcpy(&bytes, part, sizeof bytes);
            *reinterpret_cast<uint4 *>(to + piece) = bytes;
        }
    }
}

// Returns i % size, and replaces i with i / size: takes the last digit of i in a mixed radix.
// Divisions in 64 bits take several times as long as in 32, so 32 bits are used if i fits.
__device__ uint32_t take_digit(uint64_t &i, uint32_t size) {
    if (i >> 32) {
        uint32_t digit = i % size;
        i /= size;
        return digit;
    }
    uint32_t quotient = (uint32_t)i / size, digit = (uint32_t)i - quotient * size;
    i = quotient;
    return digit;
}

// Dropout mask: the factor by which each element of a tensor is multiplied. The bits are the same
// as on the host (rng.rs).
struct Dropout {
    uint64_t key;
    uint32_t threshold;
    float kept;

    __device__ static uint32_t turn(uint32_t x, int shift, uint32_t factor) {
        return (x ^ (x >> shift)) * factor;
    }

    __device__ float factor(uint64_t index) const {
        if (threshold == 0) return kept;
        uint32_t x = (uint32_t)index ^ (uint32_t)key;
        x = turn(x, 16, 0x7feb352du);
        x = turn(x, 15, 0x846ca68bu);
        x = turn(x, 16, 1u);
        x += (uint32_t)(key >> 32);
        x = turn(x, 16, 0x7feb352du);
        x = turn(x, 15, 1u);
        return x >= threshold ? kept : 0.0f;
    }
};

// Returns the sum over a warp to all of its threads.
__device__ float warp_sum(float x) {
    for (int apart = 16; apart > 0; apart >>= 1) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

__device__ float warp_max(float x) {
    for (int apart = 16; apart > 0; apart >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

// Combines the results of all warps of a block, and returns the result to all threads. The block
// must consist of whole warps, and x must already be combined over each warp.
template <typename Combine>
__device__ float over_block(float x, Combine combine) {
    __shared__ float parts[32];
    uint32_t warps = blockDim.x / 32;
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (uint32_t warp = 1; warp < warps; warp++) x = combine(x, parts[warp]);
    __syncthreads();
    return x;
}

__device__ float block_sum(float x) {
    return over_block(warp_sum(x), [](float a, float b) { return a + b; });
}

__device__ float block_max(float x) {
    return over_block(warp_max(x), [](float a, float b) { return fmaxf(a, b); });
}

// Sums over rows. A block has TILE times TILE threads; each thread sums N columns over every
// TILE-th row. If a thread reads 16 bytes at once, a block reads 256 neighbouring bytes of a row.
constexpr uint32_t TILE = 16;

// Returns the first of the N columns of this thread, where `tile` is the index of the block's tile
// (TILE * N neighbouring columns).
template <uint32_t N>
__device__ uint32_t tile_column(uint32_t tile) {
    return (tile * TILE + threadIdx.x % TILE) * N;
}

// Adds up the sums of the TILE threads that have the same columns of this tile. Writes the results
// to out[column], or adds them to it if `is_added`.
template <uint32_t N>
__device__ void add_up(const float (&sums)[N], float *out, uint32_t tile, uint32_t width,
                       bool is_added = false) {
    __shared__ float parts[TILE][TILE * N];
#pragma unroll
    for (uint32_t lane = 0; lane < N; lane++)
        parts[threadIdx.x / TILE][threadIdx.x % TILE * N + lane] = sums[lane];
    __syncthreads();
    uint32_t column = tile * TILE * N + threadIdx.x;
    if (threadIdx.x < TILE * N && column < width) {
        float sum = 0.0f;
        for (uint32_t row = 0; row < TILE; row++) sum += parts[row][threadIdx.x];
        out[column] = is_added ? out[column] + sum : sum;
    }
    __syncthreads();
}

// Sums `count` rows whose starts are `row_stride` apart; writes the sum to out, or adds it if
// `is_added`. This is the last step of sums whose parts were computed for blocks of rows.
__device__ void sum_of_rows(const float *rows, float *out, uint32_t count, uint32_t width,
                            uint32_t row_stride, uint32_t is_added) {
    for (uint32_t tile = blockIdx.x; tile * TILE < width; tile += gridDim.x) {
        uint32_t column = tile_column<1>(tile);
        float sum[1] = {0.0f};
        if (column < width) {
#pragma unroll 4
            for (uint32_t row = threadIdx.x / TILE; row < count; row += TILE)
                sum[0] += rows[row * (uint64_t)row_stride + column];
        }
        add_up(sum, out, tile, width, is_added);
    }
}

}  // namespace
