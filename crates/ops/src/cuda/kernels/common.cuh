// Types, rows, sums: what kernels share.
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

// Elements of a type in 16 bytes, the most that a thread reads at once.
template <typename T>
constexpr uint32_t LANES = 16 / sizeof(T);

// Whether 16 bytes at once may be read and written there; null is not read.
template <typename... Pointers>
__device__ bool are_aligned(Pointers... pointers) {
    return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

// Reads N elements side by side: one, or as many as fill pieces of 16 bytes that are aligned.
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

// Writes N elements side by side, rounded.
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

// Takes the last digit of a number: i % size, which leaves i / size. Divisions of 64 bits take
// several times as long as those of 32.
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

// What an element of a tensor is multiplied by: the same bits as everywhere (rng.rs).
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

// The sum over a warp, which all of its threads get.
__device__ float warp_sum(float x) {
    for (int apart = 16; apart > 0; apart >>= 1) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

__device__ float warp_max(float x) {
    for (int apart = 16; apart > 0; apart >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

// The same over a block of whole warps.
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

// Sums over rows: the threads of a block are TILE times TILE, and each has N columns of every
// TILE-th row. So a row is read in pieces of at least 256 bytes where 16 are read at once.
constexpr uint32_t TILE = 16;

// The first of the columns of this thread, in a tile of them.
template <uint32_t N>
__device__ uint32_t tile_column(uint32_t tile) {
    return (tile * TILE + threadIdx.x % TILE) * N;
}

// Adds up the sums of this tile's threads with the same columns, to what is in out[column] if
// `is_added`.
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

// The sum of some rows, whose starts are `row_stride` apart, added to what is there if `is_added`:
// what sums over blocks of rows end with.
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
