// A type of eight bits, which Candle's kernels name and Taper does not use.
#pragma once

#include "gpu.h"

enum { __NV_E4M3 };
struct __nv_fp8_e4m3 {
    uint8_t __x;
    __nv_fp8_e4m3() = default;
    template <typename Number> explicit __nv_fp8_e4m3(Number) { abort(); }
};
inline float __nv_cvt_fp8_to_halfraw(uint8_t, int) { abort(); }
