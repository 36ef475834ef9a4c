// Kernels for CUDA of what Candle would need many for. Each computes in f32 and rounds its result
// once, sums in an order that the shape fixes, and writes every element of its result.
//
// A kernel's name ends in the type of its activations: f32, f16 or bf16.

#include <cstdint>
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

// What an element of a tensor is multiplied by: the same bits as everywhere (rng.rs).
struct Dropout {
    uint64_t key;
    uint32_t threshold;
    float kept;

    __device__ static uint32_t turn(uint32_t x, int shift, uint32_t factor) {
        return (x ^ (x >> shift)) * factor;
    }

    __device__ float factor(uint64_t index) const {
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

// In the order of `Activation`.
enum Activation { IDENTITY, RELU, GELU, GELU_TANH, SWISH, QUICK_GELU, TANH };

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The value of an activation, and its derivative.
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
    default: return make_float2(x, 1.0f);
    }
}

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

// x · mask; its own way back.
template <typename T>
__device__ void drop(const T *x, T *out, uint64_t count, Dropout dropout) {
    for (uint64_t i = first(); i < count; i += stride()) {
        // The factor is of the type as well, as where it is a tensor.
        T factor;
        round_to(factor, dropout.factor(i));
        round_to(out[i], wide(x[i]) * wide(factor));
    }
}

// Row i is row index[i] of x, and zeros where that is the largest number.
template <typename T>
__device__ void rows(const T *x, const uint32_t *index, T *out, uint64_t count, uint32_t width) {
    for (uint64_t i = first(); i < count; i += stride()) {
        uint32_t row = index[i / width];
        if (row == 0xffffffffu)
            round_to(out[i], 0.0f);
        else
            out[i] = x[row * (uint64_t)width + i % width];
    }
}

// Of packed sequences, the rows that each has in which heads: starts has one more than sequences.
struct Heads {
    uint32_t heads, longest, width, row_stride;

    // The packed element of one of (sequence, head, token, width), or none.
    __device__ bool packed(uint64_t i, const uint32_t *starts, uint64_t &at) const {
        uint64_t column = i % width, token = i / width % longest;
        uint64_t head = i / width / longest % heads, sequence = i / width / longest / heads;
        uint64_t row = starts[sequence] + token;
        at = row * row_stride + head * width + column;
        return row < starts[sequence + 1];
    }
};

// Columns of packed rows as (sequence, head, token, width), times a scale; zeros behind a sequence.
template <typename T>
__device__ void split_heads(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                            float scale) {
    for (uint64_t i = first(); i < count; i += stride()) {
        uint64_t at;
        round_to(out[i], shape.packed(i, starts, at) ? wide(x[at]) * scale : 0.0f);
    }
}

// The other way.
template <typename T>
__device__ void merge_heads(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                            float scale) {
    for (uint64_t i = first(); i < count; i += stride()) {
        uint64_t at;
        if (shape.packed(i, starts, at)) round_to(out[at], wide(x[i]) * scale);
    }
}

// Row ids[i] of the result is the sum of the rows order[ends[i - 1]] to order[ends[i]] of x.
template <typename T>
__device__ void row_sums(const T *x, const uint32_t *ids, const uint32_t *ends,
                         const uint32_t *order, T *out, uint32_t width) {
    uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    float sum = 0.0f;
    uint32_t at = blockIdx.y == 0 ? 0 : ends[blockIdx.y - 1];
    for (; at < ends[blockIdx.y]; at++)
        sum += wide(x[order[at] * (uint64_t)width + column]);
    round_to(out[ids[blockIdx.y] * (uint64_t)width + column], sum);
}

// One warp a row of a layer norm: the mean, and the reciprocal of the deviation.
template <typename T>
__device__ float2 statistics(const T *row, uint32_t width, float epsilon) {
    float sum = 0.0f, squares = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < width; i += 32) sum += wide(row[i]);
    float mean = warp_sum(sum) / width;
    for (uint32_t i = threadIdx.x & 31; i < width; i += 32) {
        float centred = wide(row[i]) - mean;
        squares += centred * centred;
    }
    return make_float2(mean, 1.0f / sqrtf(warp_sum(squares) / width + epsilon));
}

template <typename T>
__device__ void layer_norm(const T *x, const float *weight, const float *bias, T *out,
                           uint64_t rows, uint32_t width, float epsilon) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    x += row * width;
    out += row * width;
    float2 found = statistics(x, width, epsilon);
    for (uint32_t i = threadIdx.x & 31; i < width; i += 32)
        round_to(out[i], (wide(x[i]) - found.x) * found.y * weight[i] + bias[i]);
}

// The gradient of x, and for each row its mean and the reciprocal of its deviation.
template <typename T>
__device__ void layer_norm_back(const T *x, const float *weight, const T *gradient, T *out,
                                float *found_rows, uint64_t rows, uint32_t width, float epsilon) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    x += row * width;
    gradient += row * width;
    out += row * width;
    float2 found = statistics(x, width, epsilon);
    float sum = 0.0f, along = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < width; i += 32) {
        float weighted = wide(gradient[i]) * weight[i];
        sum += weighted;
        along += weighted * (wide(x[i]) - found.x) * found.y;
    }
    sum = warp_sum(sum) / width;
    along = warp_sum(along) / width;
    for (uint32_t i = threadIdx.x & 31; i < width; i += 32) {
        float normal = (wide(x[i]) - found.x) * found.y;
        round_to(out[i], found.y * (wide(gradient[i]) * weight[i] - sum - normal * along));
    }
    if ((threadIdx.x & 31) == 0) {
        found_rows[2 * row] = found.x;
        found_rows[2 * row + 1] = found.y;
    }
}

// The gradients of weight and bias, summed over some rows: (blocks of rows, 2, width).
template <typename T>
__device__ void layer_norm_sums(const T *x, const T *gradient, const float *found_rows, float *out,
                                uint64_t rows, uint32_t width, uint32_t rows_at_once) {
    uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    uint64_t row = blockIdx.y * (uint64_t)rows_at_once;
    uint64_t end = min(row + rows_at_once, rows);
    float of_weight = 0.0f, of_bias = 0.0f;
    for (; row < end; row++) {
        float here = wide(gradient[row * width + column]);
        of_bias += here;
        of_weight += here * (wide(x[row * width + column]) - found_rows[2 * row]) *
                     found_rows[2 * row + 1];
    }
    out += blockIdx.y * 2ull * width;
    out[column] = of_weight;
    out[width + column] = of_bias;
}

// What follows a product: residual + dropout(activation(product + bias)). No bias and no residual
// are null.
template <typename T>
__device__ void epilogue(const T *product, const float *bias, const T *residual, T *out,
                         uint64_t count, uint32_t width, int activation, Dropout dropout) {
    for (uint64_t i = first(); i < count; i += stride()) {
        float x = wide(product[i]);
        if (bias) x += bias[i % width];
        x = activated(activation, x).x * dropout.factor(i);
        if (residual) x += wide(residual[i]);
        round_to(out[i], x);
    }
}

// The gradient of what an activation is of.
template <typename T>
__device__ float before_activation(const T *product, const float *bias, const T *gradient,
                                   uint64_t i, uint32_t width, int activation,
                                   const Dropout &dropout) {
    float x = wide(product[i]);
    if (bias) x += bias[i % width];
    return wide(gradient[i]) * dropout.factor(i) * activated(activation, x).y;
}

template <typename T>
__device__ void epilogue_back(const T *product, const float *bias, const T *gradient, T *out,
                              uint64_t count, uint32_t width, int activation, Dropout dropout) {
    for (uint64_t i = first(); i < count; i += stride())
        round_to(out[i],
                 before_activation(product, bias, gradient, i, width, activation, dropout));
}

// The gradient of the bias, summed over some rows: (blocks of rows, width).
template <typename T>
__device__ void epilogue_sums(const T *product, const float *bias, const T *gradient, float *out,
                              uint64_t rows, uint32_t width, uint32_t rows_at_once, int activation,
                              Dropout dropout) {
    uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    uint64_t row = blockIdx.y * (uint64_t)rows_at_once;
    uint64_t end = min(row + rows_at_once, rows);
    float sum = 0.0f;
    for (; row < end; row++)
        sum += before_activation(product, bias, gradient, row * width + column, width, activation,
                                 dropout);
    out[blockIdx.y * (uint64_t)width + column] = sum;
}

// Where the scores of a query lie, and their mask.
struct Scores {
    uint32_t heads, mask_heads, queries, keys;

    // Of (sequence, head, query) the row of the mask (sequence, mask's head, query).
    __device__ uint64_t mask_row(uint64_t row) const {
        uint64_t query = row % queries, head = row / queries % heads;
        uint64_t sequence = row / queries / heads;
        return (sequence * mask_heads + (mask_heads == 1 ? 0 : head)) * queries + query;
    }

    // The first element of its dropout: queries are packed there.
    __device__ uint64_t drawn(uint64_t row, const uint32_t *starts) const {
        uint64_t query = row % queries, head = row / queries % heads;
        uint64_t sequence = row / queries / heads;
        return ((starts[sequence] + query) * heads + head) * keys;
    }
};

// The largest score of a row, and the sum of exponentials; one warp a row.
template <typename T>
__device__ float2 normalizer(const T *scores, const float *mask, uint32_t keys) {
    float most = -INFINITY, sum = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < keys; i += 32)
        most = fmaxf(most, wide(scores[i]) + mask[i]);
    most = warp_max(most);
    for (uint32_t i = threadIdx.x & 31; i < keys; i += 32)
        sum += expf(wide(scores[i]) + mask[i] - most);
    return make_float2(most, warp_sum(sum));
}

// Attention weights, after dropout.
template <typename T>
__device__ void softmax(const T *scores, const float *mask, const uint32_t *starts, T *out,
                        uint64_t rows, Scores shape, Dropout dropout) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    scores += row * shape.keys;
    out += row * shape.keys;
    mask += shape.mask_row(row) * shape.keys;
    uint64_t drawn = shape.drawn(row, starts);
    float2 found = normalizer(scores, mask, shape.keys);
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        round_to(out[i], weight * dropout.factor(drawn + i));
    }
}

template <typename T>
__device__ void softmax_back(const T *scores, const float *mask, const uint32_t *starts,
                             const T *gradient, T *out, uint64_t rows, Scores shape,
                             Dropout dropout) {
    uint64_t row = first() / 32;
    if (row >= rows) return;
    scores += row * shape.keys;
    gradient += row * shape.keys;
    out += row * shape.keys;
    mask += shape.mask_row(row) * shape.keys;
    uint64_t drawn = shape.drawn(row, starts);
    float2 found = normalizer(scores, mask, shape.keys);
    float along = 0.0f;
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        along += weight * wide(gradient[i]) * dropout.factor(drawn + i);
    }
    along = warp_sum(along);
    for (uint32_t i = threadIdx.x & 31; i < shape.keys; i += 32) {
        float weight = expf(wide(scores[i]) + mask[i] - found.x) / found.y;
        round_to(out[i], weight * (wide(gradient[i]) * dropout.factor(drawn + i) - along));
    }
}

}  // namespace

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
                                               T *out, uint32_t width) {                           \
        row_sums(x, ids, ends, order, out, width);                                                 \
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
        const T *product, const float *bias, const T *gradient, T *out, uint64_t count,            \
        uint32_t width, uint32_t activation, uint64_t key, uint32_t threshold, float kept) {       \
        epilogue_back(product, bias, gradient, out, count, width, activation,                      \
                      Dropout{key, threshold, kept});                                              \
    }                                                                                              \
    extern "C" __global__ void epilogue_sums_##NAME(                                               \
        const T *product, const float *bias, const T *gradient, float *out, uint64_t rows,         \
        uint32_t width, uint32_t rows_at_once, uint32_t activation, uint64_t key,                  \
        uint32_t threshold, float kept) {                                                          \
        epilogue_sums(product, bias, gradient, out, rows, width, rows_at_once, activation,         \
                      Dropout{key, threshold, kept});                                              \
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

// The sum of some rows: what sums over blocks of rows end with.
extern "C" __global__ void sum_rows(const float *rows, float *out, uint32_t count,
                                    uint64_t width) {
    for (uint64_t i = first(); i < width; i += stride()) {
        float sum = 0.0f;
        for (uint32_t row = 0; row < count; row++) sum += rows[row * width + i];
        out[i] = sum;
    }
}

// A step of Adam on one parameter, in place.
extern "C" __global__ void adam(float *weights, const float *gradients, float *first_moments,
                                float *second_moments, uint64_t count, float scale, float beta1,
                                float beta2, float of_gradient, float of_square, float rate,
                                float root, float epsilon, float added, float kept) {
    for (uint64_t i = first(); i < count; i += stride()) {
        float gradient = gradients[i] * scale + added * weights[i];
        float mean = beta1 * first_moments[i] + of_gradient * gradient;
        float square = beta2 * second_moments[i] + of_square * gradient * gradient;
        first_moments[i] = mean;
        second_moments[i] = square;
        weights[i] = kept * weights[i] - rate * mean / (sqrtf(square) * root + epsilon);
    }
}
