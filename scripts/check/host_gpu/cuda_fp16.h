// Half precision on the host: IEEE's binary16, rounded to the nearest even.
#pragma once

#include "gpu.h"

namespace host_gpu {

struct Binary16 {
    static float widen(uint16_t x) {
        uint32_t sign = (x & 0x8000u) << 16, exponent = x >> 10 & 31, part = x & 0x3ffu;
        if (exponent == 0) {
            float value = ldexpf(static_cast<float>(part), -24);
            return sign ? -value : value;
        }
        return from_bits(sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | part << 13);
    }

    static uint16_t round(float x) {
        uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
        if (size > 0x7f800000u) return sign | 0x7fffu;
        // What is rounded to 65,536 and above.
        if (size >= 0x477ff000u) return sign | 0x7c00u;
        // Multiples of 2^-24, of which nearbyint takes the nearest, and the even one of two.
        if (size < 0x38800000u)
            return sign | static_cast<uint16_t>(nearbyintf(ldexpf(from_bits(size), 24)));
        return sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
    }
};

}  // namespace host_gpu

using __half = host_gpu::Half<host_gpu::Binary16>;

inline float __half2float(__half x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __float2half(float x) { return x; }
