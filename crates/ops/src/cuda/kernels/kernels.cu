// CUDA kernels for operations that would take many of Candle's kernels. Each kernel computes in
// f32, rounds its result once, adds in an order that depends only on the shape, and writes every
// element of its result. If the rows of a tensor are multiples of 16 bytes, threads read and write
// 16 bytes at once.
//
// The name of a kernel ends in the type of its activations: f32, f16 or bf16.

#include "elements.cuh"
#include "epilogue.cuh"
#include "loss.cuh"
#include "norm.cuh"
#include "softmax.cuh"

#define KERNELS(T, NAME)                                                                           \
    extern "C" __global__ void drop_##NAME(const T *x, T *out, uint64_t count, uint64_t key,       \
                                           uint32_t threshold, float kept) {                       \
        drop(x, out, count, Dropout{key, threshold, kept});                                        \
    }                                                                                              \
    extern "C" __global__ void rows_##NAME(const T *x, const uint32_t *index, T *out,              \
                                           uint64_t count, uint32_t width) {                       \
        rows(x, index, out, count, width);                                                         \
    }                                                                                              \
    extern "C" __global__ void split_heads_##NAME(                                                 \
        const T *x, const uint32_t *starts, T *out, uint64_t count, uint32_t heads,                \
        uint32_t longest, uint32_t width, uint32_t row_stride, float scale) {                      \
        split_heads(x, starts, out, count, Heads{heads, longest, width, row_stride}, scale);       \
    }                                                                                              \
    extern "C" __global__ void merge_heads_##NAME(                                                 \
        const T *x, const uint32_t *starts, T *out, uint64_t count, uint32_t heads,                \
        uint32_t longest, uint32_t width, uint32_t row_stride, float scale) {                      \
        merge_heads(x, starts, out, count, Heads{heads, longest, width, row_stride}, scale);       \
    }                                                                                              \
    extern "C" __global__ void row_sums_##NAME(const T *x, const uint32_t *ids,                    \
                                               const uint32_t *ends, const uint32_t *order,        \
                                               T *out, uint32_t width, float scale) {              \
        row_sums(x, ids, ends, order, out, width, scale);                                          \
    }                                                                                              \
    extern "C" __global__ void layer_norm_##NAME(const T *x, const float *weight,                  \
                                                 const float *bias, T *out, uint64_t rows,         \
                                                 uint32_t width, float epsilon) {                  \
        layer_norm(x, weight, bias, out, rows, width, epsilon);                                    \
    }                                                                                              \
    extern "C" __global__ void layer_norm_back_##NAME(const T *x, const float *weight,             \
                                                      const T *gradient, T *out, float *found,     \
                                                      uint64_t rows, uint32_t width,               \
                                                      float epsilon) {                             \
        layer_norm_back(x, weight, gradient, out, found, rows, width, epsilon);                    \
    }                                                                                              \
    extern "C" __global__ void layer_norm_sums_##NAME(const T *x, const T *gradient,               \
                                                      const float *found, float *out,              \
                                                      uint64_t rows, uint32_t width,               \
                                                      uint32_t rows_at_once) {                     \
        layer_norm_sums(x, gradient, found, out, rows, width, rows_at_once);                       \
    }                                                                                              \
    extern "C" __global__ void epilogue_##NAME(const T *product, const float *bias,                \
                                               const T *residual, T *out, uint64_t count,          \
                                               uint32_t width, uint32_t activation, uint64_t key,  \
                                               uint32_t threshold, float kept) {                   \
        epilogue(product, bias, residual, out, count, width, activation,                           \
                 Dropout{key, threshold, kept});                                                   \
    }                                                                                              \
    extern "C" __global__ void epilogue_back_##NAME(                                               \
        const T *product, const float *bias, const T *gradient, T *out, float *sums,               \
        uint64_t rows, uint32_t width, uint32_t rows_at_once, uint32_t activation, uint64_t key,   \
        uint32_t threshold, float kept) {                                                          \
        epilogue_back(product, bias, gradient, out, sums, rows, width, rows_at_once, activation,   \
                      Dropout{key, threshold, kept});                                              \
    }                                                                                              \
    extern "C" __global__ void cross_entropy_##NAME(                                               \
        T *logits, const uint32_t *targets, float *sums, uint32_t width, float smoothing,          \
        float scale, uint32_t has_gradient) {                                                      \
        cross_entropy(logits, targets, sums, width, smoothing, scale, has_gradient);               \
    }                                                                                              \
    extern "C" __global__ void softmax_##NAME(                                                     \
        const T *scores, const float *mask, const uint32_t *starts, T *out, uint64_t rows,         \
        uint32_t heads, uint32_t mask_heads, uint32_t queries, uint32_t keys, uint64_t key,        \
        uint32_t threshold, float kept) {                                                          \
        softmax(scores, mask, starts, out, rows, Scores{heads, mask_heads, queries, keys},         \
                Dropout{key, threshold, kept});                                                    \
    }                                                                                              \
    extern "C" __global__ void softmax_back_##NAME(                                                \
        const T *scores, const float *mask, const uint32_t *starts, const T *gradient, T *out,     \
        uint64_t rows, uint32_t heads, uint32_t mask_heads, uint32_t queries, uint32_t keys,       \
        uint64_t key, uint32_t threshold, float kept) {                                            \
        softmax_back(scores, mask, starts, gradient, out, rows,                                    \
                     Scores{heads, mask_heads, queries, keys}, Dropout{key, threshold, kept});     \
    }

KERNELS(float, f32)
KERNELS(__half, f16)
KERNELS(__nv_bfloat16, bf16)

extern "C" __global__ void sum_rows(const float *rows, float *out, uint32_t count,
                                    uint32_t width, uint32_t row_stride, uint32_t is_added) {
    sum_of_rows(rows, out, count, width, row_stride, is_added);
}

extern "C" __global__ void add_to(const float *x, float *out, uint64_t count) {
    add_elements(x, out, count);
}

extern "C" __global__ void adam(const Part *parts, uint32_t part_count, const float *gradients,
                                float *first_moments, float *second_moments, uint64_t count,
                                float scale, float beta1, float beta2, float of_gradient,
                                float of_square, float root, float epsilon) {
    adam_step(parts, part_count, gradients, first_moments, second_moments, count, scale, beta1,
              beta2, of_gradient, of_square, root, epsilon);
}
