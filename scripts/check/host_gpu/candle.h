// What Candle's kernels call beside that, of which each has its name for each type.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

using std::isnan;
using std::signbit;

struct __nv_bfloat162 { __nv_bfloat16 x, y; };
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }

template <typename T> T hsqrt(T x) { return sqrtf(x); }
template <typename T> T hcos(T x) { return cosf(x); }
template <typename T> T hsin(T x) { return sinf(x); }
template <typename T> T hlog(T x) { return logf(x); }
template <typename T> T hexp(T x) { return expf(x); }
template <typename T> T __habs(T x) { return fabsf(x); }
template <typename T> bool __hisnan(T x) { return isnan(static_cast<float>(x)); }
template <typename T> T __hmax_nan(T x, T y) { return isnan(float(x)) || float(x) > y ? x : y; }
template <typename T> T __hmin_nan(T x, T y) { return isnan(float(x)) || float(x) < y ? x : y; }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
inline float normcdff(float x) { return static_cast<float>(normcdf(x)); }

template <typename To, typename From> To with_bits_of(From x) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &x, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x) { return with_bits_of<unsigned>(x); }
inline int __float_as_int(float x) { return with_bits_of<int>(x); }
inline float __uint_as_float(unsigned x) { return with_bits_of<float>(x); }
inline float __int_as_float(int x) { return with_bits_of<float>(x); }
inline long long __double_as_longlong(double x) { return with_bits_of<long long>(x); }
inline double __longlong_as_double(long long x) { return with_bits_of<double>(x); }
template <typename T> unsigned short __half_as_ushort(T x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return with_bits_of<__half>(bits); }

template <typename T, typename U> T atomicMax(T *at, U value) {
    T before = *at;
    *at = max(before, static_cast<T>(value));
    return before;
}
template <typename T, typename U> T atomicMin(T *at, U value) {
    T before = *at;
    *at = min(before, static_cast<T>(value));
    return before;
}
template <typename T, typename U> T atomicCAS(T *at, U expected, U value) {
    T before = *at;
    if (before == expected) *at = value;
    return before;
}
