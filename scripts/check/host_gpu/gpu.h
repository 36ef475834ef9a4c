// The language of CUDA kernels on the host: what a kernel finds there beside C++, for any compiler.
// Threads of a block take turns (threads.cpp), and each value is the one that a GPU has, but for
// the last bits of exponentials and their like.
#pragma once

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#ifndef __global__  // build.sh looks for it
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __restrict__ __restrict
// Blocks run one after the other, so that one of them is all that there is.
#define __shared__ static
#define __launch_bounds__(...)

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

template <typename T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <typename T> constexpr T max(T a, T b) { return a < b ? b : a; }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

// Waits for all threads of the block that have not ended.
void __syncthreads();

namespace host_gpu {

inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// A number of 16 bits, which computes as a float and is rounded when it is stored.
template <typename Format> struct alignas(2) Half {
    uint16_t bits;

    Half() = default;
    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Half(Number x) : bits(Format::round(static_cast<float>(x))) {}
    operator float() const { return Format::widen(bits); }
    Half &operator+=(float x) { return *this = *this + x; }
    Half &operator*=(float x) { return *this = *this * x; }
};

// Gives `value` to the other threads of the warp; the value that `lane` has given. It is an error
// if that thread does not take part.
uint64_t exchange(uint64_t value, unsigned lane);
unsigned lane();

template <typename T> T shuffled(T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a value of at most eight bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = exchange(bits, from);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// A kernel with arguments as the driver has them: the address of each.
struct Kernel {
    const char *name;
    void (*run)(void **arguments);
};

template <auto function> struct Call;
template <typename... Types, void (*function)(Types...)> struct Call<function> {
    template <size_t... Places>
    static void with(void **arguments, std::index_sequence<Places...>) {
        function(*static_cast<std::remove_cv_t<Types> *>(arguments[Places])...);
    }
    static void run(void **arguments) {
        with(arguments, std::index_sequence_for<Types...>{});
    }
};

// Kernels of a source, which can be launched by name from when the program starts.
struct Kernels {
    const Kernel *first;
    size_t count;
    const Kernels *next;
    Kernels(const Kernel *first, size_t count);
};

}  // namespace host_gpu

template <typename T> T __shfl_xor_sync(uint32_t, T value, int apart, int = 32) {
    return host_gpu::shuffled(value, host_gpu::lane() ^ apart);
}
template <typename T> T __shfl_down_sync(uint32_t, T value, unsigned apart, int = 32) {
    unsigned lane = host_gpu::lane();
    return host_gpu::shuffled(value, lane + apart < 32 ? lane + apart : lane);
}
template <typename T> T __shfl_sync(uint32_t, T value, int from, int = 32) {
    return host_gpu::shuffled(value, from & 31);
}
inline void __syncwarp(uint32_t = 0xffffffffu) { host_gpu::exchange(0, host_gpu::lane()); }

// Threads take turns at barriers alone.
template <typename T, typename U> T atomicAdd(T *at, U value) {
    T before = *at;
    *at = before + static_cast<T>(value);
    return before;
}
