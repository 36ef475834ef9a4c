// Kernels that process single elements (dropout, addition, Adam), and kernels that select, add or
// rearrange rows.
#pragma once

#include "common.cuh"

namespace {

// Computes x · mask. The backward pass is the same function of the gradient.
template <uint32_t N, typename T>
__device__ void drop_by(const T *x, T *out, uint64_t count, Dropout dropout) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        float values[N];
        load(x + i, values);
        for (uint32_t lane = 0; lane < N; lane++) {
            // The factor is rounded to the type, as in the composed operation, in which the mask is
            // a tensor of the type.
            T factor;
            round_to(factor, dropout.factor(i + lane));
            values[lane] *= wide(factor);
        }
        store(out + i, values);
    }
}

template <typename T>
__device__ void drop(const T *x, T *out, uint64_t count, Dropout dropout) {
    if (count % LANES<T> == 0 && are_aligned(x, out))
        drop_by<LANES<T>>(x, out, count, dropout);
    else
        drop_by<1>(x, out, count, dropout);
}

// Row i of the result is row index[i] of x, or zeros if index[i] is the largest 32-bit number.
template <uint32_t N, typename T>
__device__ void rows_by(const T *x, const uint32_t *index, T *out, uint64_t count,
                        uint32_t width) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        uint64_t place = i;
        uint32_t column = take_digit(place, width), row = index[place];
        float values[N] = {};
        if (row != 0xffffffffu) load(x + row * (uint64_t)width + column, values);
        store(out + i, values);
    }
}

template <typename T>
__device__ void rows(const T *x, const uint32_t *index, T *out, uint64_t count, uint32_t width) {
    if (width % LANES<T> == 0 && are_aligned(x, out))
        rows_by<LANES<T>>(x, index, out, count, width);
    else
        rows_by<1>(x, index, out, count, width);
}

// Adds to row ids[i] of out, for each i, scale times the sum of some rows of x. The indices of
// these rows are the elements of order from index ends[i - 1] (0 if i is 0) up to, but not
// including, index ends[i].
template <typename T>
__device__ void row_sums(const T *x, const uint32_t *ids, const uint32_t *ends,
                         const uint32_t *order, T *out, uint32_t width, float scale) {
    uint32_t row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    float sum = 0.0f;
    for (uint32_t at = row == 0 ? 0 : ends[row - 1]; at < ends[row]; at++)
        sum += wide(x[order[at] * (uint64_t)width + column]);
    T &to = out[ids[row] * (uint64_t)width + column];
    round_to(to, wide(to) + scale * sum);
}

// Layout of heads in packed sequences: starts[i] is the first row of sequence i, and the last
// element of starts is the number of rows. A head has `width` columns; rows begin `row_stride`
// elements apart.
struct Heads {
    uint32_t heads, longest, width, row_stride;

    // Finds the packed element for index i of a tensor (sequence, head, token, width), and writes
    // its index to `at`. Returns false if the sequence is too short to have this token.
    __device__ bool packed(uint64_t i, const uint32_t *starts, uint64_t &at) const {
        uint32_t column = take_digit(i, width), token = take_digit(i, longest);
        uint32_t head = take_digit(i, heads);
        uint32_t row = starts[i] + token;
        at = row * (uint64_t)row_stride + head * width + column;
        return row < starts[i + 1];
    }

    // Whether the elements of a head can be read and written 16 bytes at a time.
    template <typename T>
    __device__ bool are_wide(const T *x, const T *out) const {
        return width % LANES<T> == 0 && row_stride % LANES<T> == 0 && are_aligned(x, out);
    }
};

template <uint32_t N>
__device__ void scale_all(float (&values)[N], float scale) {
    for (uint32_t lane = 0; lane < N; lane++) values[lane] *= scale;
}

template <uint32_t N, typename T>
__device__ void split_by(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                         float scale) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        uint64_t at;
        float values[N] = {};
        if (shape.packed(i, starts, at)) load(x + at, values);
        scale_all(values, scale);
        store(out + i, values);
    }
}

// Copies columns of packed rows, times a scale, to a tensor (sequence, head, token, width), with
// zeros after the last token of a sequence.
template <typename T>
__device__ void split_heads(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                            float scale) {
    if (shape.are_wide(x, out))
        split_by<LANES<T>>(x, starts, out, count, shape, scale);
    else
        split_by<1>(x, starts, out, count, shape, scale);
}

template <uint32_t N, typename T>
__device__ void merge_by(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                         float scale) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        uint64_t at;
        if (!shape.packed(i, starts, at)) continue;
        float values[N];
        load(x + i, values);
        scale_all(values, scale);
        store(out + at, values);
    }
}

// The inverse of `split_heads`: copies a tensor to columns of packed rows, times a scale.
template <typename T>
__device__ void merge_heads(const T *x, const uint32_t *starts, T *out, uint64_t count, Heads shape,
                            float scale) {
    if (shape.are_wide(x, out))
        merge_by<LANES<T>>(x, starts, out, count, shape, scale);
    else
        merge_by<1>(x, starts, out, count, shape, scale);
}

// Computes out += x.
template <uint32_t N>
__device__ void add_by(const float *x, float *out, uint64_t count) {
    for (uint64_t i = N * first(); i < count; i += N * stride()) {
        float values[N], before[N];
        load(x + i, values);
        load(out + i, before);
        for (uint32_t lane = 0; lane < N; lane++) values[lane] += before[lane];
        store(out + i, values);
    }
}

__device__ void add_elements(const float *x, float *out, uint64_t count) {
    if (count % LANES<float> == 0 && are_aligned(x, out))
        add_by<LANES<float>>(x, out, count);
    else
        add_by<1>(x, out, count);
}

// A parameter in a step of Adam. Gradients and moments of all parameters are in flat buffers.
// `weights` is the address of the parameter's first weight, less the offset in bytes at which the
// parameter begins in the buffers; `end` is the index in the buffers at which it ends. The other
// fields are the parameter's own numbers for the step.
struct Part {
    uint64_t weights, end;
    float rate, added, kept;
    uint32_t is_trained;
};

// Returns the index of the parameter that contains an element of the flat buffers, which is the
// first one that ends after the element.
__device__ uint32_t part_of(const Part *parts, uint32_t count, uint64_t element) {
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (parts[middle].end > element)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Takes a step of Adam on all parameters, in place. The parameters (`parts`) follow each other in
// the flat buffers and fill them.
__device__ void adam_step(const Part *parts, uint32_t part_count, const float *gradients,
                          float *first_moments, float *second_moments, uint64_t count, float scale,
                          float beta1, float beta2, float of_gradient, float of_square, float root,
                          float epsilon) {
    const uint64_t piece = 8 * (uint64_t)blockDim.x;
    for (uint64_t start = blockIdx.x * piece; start < count; start += gridDim.x * piece) {
        uint32_t number = part_of(parts, part_count, start);
        Part part = parts[number];
        uint64_t end = min(start + piece, count);
        for (uint64_t i = start + threadIdx.x; i < end; i += blockDim.x) {
            while (i >= part.end) part = parts[++number];
            if (!part.is_trained) continue;
            float &weight = *reinterpret_cast<float *>(part.weights + i * sizeof(float));
            float gradient = gradients[i] * scale + part.added * weight;
            float mean = beta1 * first_moments[i] + of_gradient * gradient;
            float square = beta2 * second_moments[i] + of_square * gradient * gradient;
            first_moments[i] = mean;
            second_moments[i] = square;
            weight = part.kept * weight - part.rate * mean / (sqrtf(square) * root + epsilon);
        }
    }
}

}  // namespace
