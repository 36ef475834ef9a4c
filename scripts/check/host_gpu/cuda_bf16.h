// bfloat16 on the host: the upper half of a float, rounded to the nearest even.
#pragma once

#include "gpu.h"

namespace host_gpu {

struct BFloat16 {
    static float widen(uint16_t x) { return from_bits(static_cast<uint32_t>(x) << 16); }

    static uint16_t round(float x) {
        uint32_t bits = bits_of(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
        return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    }
};

}  // namespace host_gpu

using __nv_bfloat16 = host_gpu::Half<host_gpu::BFloat16>;

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
